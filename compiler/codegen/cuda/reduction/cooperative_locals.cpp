// Placement of a thread group's local buffers: in registers, in a thread's local memory, in shared memory or
// in the workspace.
#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int64_t kStackBytes = 1024;  // per thread, for buffers with one copy per iteration

}  // namespace

bool CooperativeEmitter::is_of_round(loop::BufferId id) const {
  const loop::Stmt* only = nullptr;
  bool in_one = true, apart = true;
  for (const loop::Stmt& top : nest.body)
    loop::for_each_stmt({top}, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || access->buffer != id) return;
      in_one = in_one && is_range(top) && (!only || only == &top);
      only = &top;
      const std::vector<Expr>& index = access->index;
      for (const loop::Dim& dim : loop::dims_of(top))
        apart = apart && std::find(index.begin(), index.end(), dim.var) != index.end();
    });
  return only && in_one && !apart;
}

std::string CooperativeEmitter::local_element(const loop::Access& access) {
  if (!variant.columns || program[access.buffer].storage != loop::Storage::kLocal) return "";
  const bool own = of_round_.contains(access.buffer);
  return cat(local_.at(access.buffer), "[(", body_.index(loop::offset_of(program, access)), ") * ",
             own ? cat(width) : cat(lanes * width, " + lane * ", width), width > 1 ? " + u]" : "]");
}

std::function<std::string(const loop::Access&)> CooperativeEmitter::top_place() {
  return [this](const loop::Access& access) { return local_element(access); };
}

void CooperativeEmitter::declare_locals() {
  int64_t used = 0;
  std::set<loop::BufferId> shared;  // shared by the points of a block
  std::map<loop::BufferId, int> stores;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node)) ++stores[store->access.buffer];
  });
  for (size_t at = 0; at < common_; ++at) {
    loop::for_each_stmt({nest.body[at]}, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) shared.insert(store->access.buffer);
    });
    const auto* store = std::get_if<loop::Store>(&nest.body[at].node);
    if (store && stores[store->access.buffer] == 1 &&
        schedule::extent_in_elements(program[store->access.buffer]).is_const(1))
      same_.insert(store->access.buffer);
  }
  for (const loop::BufferId id : loop::buffers_of(nest)) {
    const loop::Buffer& buffer = program[id];
    if (buffer.storage != loop::Storage::kLocal) continue;
    const std::string type = text_.storage_type(buffer.dtype);
    if (const auto found = passed_.find(id); found != passed_.end()) {
      declared_ += cat("    ", type, " ", found->second, "[", kept_chunks(), "][", width, "];\n");
      if (start_ && !variant.parts)
        declared_ += cat("    ", type, " ", found->second, "_edges[", edge_chunks(), "][1];\n");
      continue;
    }
    if (same_.contains(id)) {
      local_[id] = text_.fresh("l");
      text_.line(cat(type, " ", local_[id], "[1];"));
      body_.set_buffer(id, local_[id], buffer.strides);
      continue;
    }
    const std::string name = text_.fresh("l");
    const sym::Expr elements = schedule::extent_in_elements(buffer);
    const std::optional<int64_t> count = sym::as_const(elements);
    if (is_of_round(id)) {
      of_round_.insert(id);
      const sym::Expr of_thread = variant.columns ? elements * width : elements;
      if (count && (shared.contains(id) || *count * width * byte_size(buffer.dtype) <= kStackBytes)) {
        text_.line(cat(type, " ", name, "[", std::max<int64_t>(of_thread.value(), 1), "];"));
      } else {
        STRIDEC_CHECK(!shared.contains(id), nest.name);
        scratch_ = true;
        text_.line(cat(type, "* const ", name, " = (", type, "*)",
                       text_.scratch(of_thread * team * byte_size(buffer.dtype)), " + threadIdx.x % ", team,
                       " * ", text_.size(of_thread), ";"));
      }
      local_[id] = name;
      body_.set_buffer(id, name, buffer.strides);
      continue;
    }
    const int each = variant.columns ? lanes * width : shared.contains(id) ? 1 : teams;  // copies per block
    uses_locals_ = uses_locals_ || !shared.contains(id);
    const int64_t bytes = count ? *count * byte_size(buffer.dtype) * each : 0;
    const int64_t length = std::max<int64_t>(count.value_or(1), 1);
    if (count && used + bytes <= kSharedBytes) {
      used += bytes;
      shared_used_ += (bytes + 15) / 16 * 16;
      text_.line(cat("alignas(16) __shared__ ", type, " all_", name, "[", length * each, "];"));
      text_.line(
          cat(type, "* const ", name, " = all_", name,
              variant.columns || each == 1 ? ";" : cat(" + (threadIdx.x / ", team, ") * ", length, ";")));
    } else {
      STRIDEC_CHECK(!shared.contains(id), nest.name);
      scratch_ = true;
      const sym::Expr of_team = variant.columns ? elements * each : elements;
      text_.line(cat(type, "* const ", name, " = (", type, "*)",
                     text_.scratch(of_team * byte_size(buffer.dtype)), ";"));
    }
    local_[id] = name;
    body_.set_buffer(id, name, buffer.strides);
  }
}

}  // namespace stridec::codegen::cuda
