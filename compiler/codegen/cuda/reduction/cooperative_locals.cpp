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

void CooperativeEmitter::plan_locals() {
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
    if (program[id].storage != loop::Storage::kLocal) continue;
    locals_.push_back(passed_.contains(id) ? Local{id, Local::In::kRegisters}
                      : same_.contains(id) ? Local{id, Local::In::kElement}
                                           : plan_local(id, shared.contains(id)));
  }
}

CooperativeEmitter::Local CooperativeEmitter::plan_local(loop::BufferId id, bool shared) {
  const int size = byte_size(program[id].dtype);
  const sym::Expr elements = schedule::extent_in_elements(program[id]);
  const std::optional<int64_t> count = sym::as_const(elements);
  if (is_of_round(id)) {
    of_round_.insert(id);
    const sym::Expr of_thread = variant.columns ? elements * width : elements;
    if (count && (shared || *count * width * size <= kStackBytes)) return {id, Local::In::kStack, of_thread};
    STRIDEC_CHECK(!shared, nest.name);
    return {
        .id = id, .in = Local::In::kThreadScratch, .elements = of_thread, .bytes = of_thread * team * size};
  }
  const int each = variant.columns ? lanes * width : shared ? 1 : teams;  // copies per block
  uses_locals_ = uses_locals_ || !shared;
  const int64_t bytes = count ? *count * size * each : 0;
  if (count && shared_needed_ + bytes <= kSharedBytes) {
    shared_needed_ += bytes;
    shared_used_ += (bytes + 15) / 16 * 16;
    return {id, Local::In::kShared, elements, each};
  }
  STRIDEC_CHECK(!shared, nest.name);
  const sym::Expr of_team = variant.columns ? elements * each : elements;
  return {.id = id, .in = Local::In::kScratch, .elements = of_team, .bytes = of_team * size};
}

sym::Expr CooperativeEmitter::scratch_of_locals() const {
  std::vector<sym::Expr> pieces;
  for (const Local& local : locals_) pieces.push_back(local.bytes);
  return scratch_bytes(pieces);
}

void CooperativeEmitter::declare_locals() {
  for (const Local& local : locals_) {
    if (local.in != Local::In::kRegisters) {
      declare_local(local);
      continue;
    }
    const std::string type = text_.storage_type(program[local.id].dtype), name = passed_.at(local.id);
    declared_ += cat("    ", type, " ", name, "[", kept_chunks(), "][", width, "];\n");
    if (start_ && !variant.parts)
      declared_ += cat("    ", type, " ", name, "_edges[", edge_chunks(), "][1];\n");
  }
}

void CooperativeEmitter::declare_local(const Local& local) {
  const loop::Buffer& buffer = program[local.id];
  const std::string type = text_.storage_type(buffer.dtype), name = text_.fresh("l");
  const auto length = [&] { return std::max<int64_t>(local.elements.value(), 1); };
  switch (local.in) {
    case Local::In::kRegisters: break;
    case Local::In::kElement:
    case Local::In::kStack: text_.line(cat(type, " ", name, "[", length(), "];")); break;
    case Local::In::kThreadScratch:
      text_.line(cat(type, "* const ", name, " = (", type, "*)", text_.scratch(local.bytes),
                     " + threadIdx.x % ", team, " * ", text_.size(local.elements), ";"));
      break;
    case Local::In::kShared:
      text_.line(cat("alignas(16) __shared__ ", type, " all_", name, "[", length() * local.copies, "];"));
      text_.line(cat(type, "* const ", name, " = all_", name,
                     variant.columns || local.copies == 1
                         ? ";"
                         : cat(" + (threadIdx.x / ", team, ") * ", length(), ";")));
      break;
    case Local::In::kScratch:
      text_.line(cat(type, "* const ", name, " = (", type, "*)", text_.scratch(local.bytes), ";"));
      break;
  }
  local_[local.id] = name;
  body_.set_buffer(local.id, name, buffer.strides);
}

}  // namespace stridec::codegen::cuda
