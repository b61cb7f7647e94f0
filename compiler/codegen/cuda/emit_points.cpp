// A thread per point of the parallel dims: what every nest can fall back to.
#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/flash.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/matrix.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/cuda/strip.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 24;  // more points: threads take several
constexpr int64_t kStackBytes = 1024;     // of local buffers in a thread's own memory

struct PointEmitter {
  const loop::Program& program;
  const GpuTarget& target;
  const schedule::LoopPlan plan;
  const loop::Nest nest;  // after merges and splits
  KernelText text;
  Body body;
  std::vector<loop::Dim> parallel, serial;

  PointEmitter(const loop::Program& program, const loop::Nest& original, const GpuTarget& target)
      : program(program),
        target(target),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, kCudaText),
        body(text, nest) {}

  // ---- updates ----

  bool exact(const loop::Store& store) const {
    const DType dtype = program[store.access.buffer].dtype;
    if (byte_size(dtype) < 4 || is_storage_float(dtype)) return false;
    return !is_float(dtype) || store.combine == loop::Combine::kMax || store.combine == loop::Combine::kMin;
  }

  // Points that differ in `dim` never meet in an element: one index moves with it and with nothing else that a
  // thread of another point could make up for.
  bool separates(const loop::Dim& dim, const loop::Store& store) const {
    for (const Expr& index : store.access.index) {
      const auto linear = sym::linear_in(index, dim.var);
      if (!linear || linear->coefficient.is_const(0) || sym::has_index(linear->coefficient)) continue;
      if (!sym::has_index(linear->rest)) return true;
    }
    return false;
  }

  // Float sums depend on their order: dims that meet run in order in one thread. What is exact may come in any
  // order.
  void assign() {
    std::vector<const loop::Store*> updates;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update)
        updates.push_back(store);
    });
    const bool atomic =
        std::all_of(updates.begin(), updates.end(), [&](const loop::Store* s) { return exact(*s); });
    body.atomic_updates = atomic && !updates.empty();
    for (const loop::Dim& dim : nest.dims) {
      const bool apart = atomic || std::all_of(updates.begin(), updates.end(),
                                               [&](const loop::Store* s) { return separates(dim, *s); });
      (apart && !sym::has_index(dim.extent) ? parallel : serial).push_back(dim);
    }
    // Extents of serial loops may depend on parallel dims and on serial ones before them, never the other way round.
  }

  void declare_locals(bool& scratch) {
    std::set<loop::BufferId> seen;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || program[access->buffer].storage != loop::Storage::kLocal ||
          !seen.insert(access->buffer).second)
        return;
      const loop::Buffer& buffer = program[access->buffer];
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      const Expr elements = schedule::extent_in_elements(buffer);
      const std::optional<int64_t> count = sym::as_const(elements);
      if (count && *count * byte_size(buffer.dtype) <= kStackBytes) {
        text.line(cat(type, " ", name, "[", std::max<int64_t>(*count, 1), "];"));
      } else {
        scratch = true;
        text.line(cat(type, "* const ", name, " = (", type, "*)",
                      text.scratch(elements * byte_size(buffer.dtype)), ";"));
      }
      body.set_buffer(access->buffer, name, buffer.strides);
    });
  }

  // Neighbouring points of the fastest dim by vectors.
  std::optional<Strip> strip() {
    if (parallel.empty() || !serial.empty() || parallel.back().var != nest.dims.back().var)
      return std::nullopt;
    return plan_strip(program, nest, nest.body, parallel.back().var, parallel.back().extent,
                      loop::facts_of(program, nest));
  }

  DeviceKernel emit(const std::optional<Strip>& vectors) {
    bool scratch = false;
    declare_locals(scratch);
    if (vectors) parallel.back().extent = sym::floordiv(parallel.back().extent, vectors->width);
    Expr count = 1;
    for (const loop::Dim& dim : parallel) count *= dim.extent;
    const Expr blocks = sym::min(sym::ceildiv(count, kThreads),
                                 scratch ? Expr(4 * target.multiprocessors) : Expr(kMostBlocks));
    const std::string n = body.index(count);
    text.open(cat("for (int64_t point = blockIdx.x * (int64_t)", kThreads, " + threadIdx.x; point < ", n,
                  "; point += gridDim.x * (int64_t)", kThreads, ")"));
    if (parallel.size() > 1) text.line("int64_t rest = point;");
    for (size_t d = parallel.size(); d-- > 0;) {
      if (d == 0) {
        body.set_index(parallel[0].var, parallel.size() > 1 ? "rest" : "point");
        break;
      }
      const std::string extent = body.index(parallel[d].extent), name = text.fresh("t");
      text.line(cat("const int64_t ", name, " = rest % ", extent, ";"));
      text.line(cat("rest /= ", extent, ";"));
      body.set_index(parallel[d].var, name);
    }
    if (vectors)
      print_strip(text, body, program, nest.body, *vectors,
                  cat("(", body.index(vectors->var), " * ", vectors->width, ")"));
    else
      body.print_loops(serial, 0, [&] { body.print(nest.body); });
    text.close();
    Geometry geometry{.grid = {blocks, 1, 1}, .threads = kThreads};
    geometry.scratch_owners = blocks * kThreads;
    geometry.scratch_owner = cat("blockIdx.x * (int64_t)", kThreads, " + threadIdx.x");
    return finish(text, std::move(geometry), vectors ? std::string(strip_declarations()) : std::string());
  }
};

}  // namespace

DeviceNest emit_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  PointEmitter plain(program, nest, target);
  plain.assign();
  const std::optional<Strip> strip = plain.strip();
  DeviceNest out;
  if (strip) {
    PointEmitter vectors(program, nest, target);
    vectors.assign();
    // The statements of the strip are those of a copy.
    const std::optional<Strip> own = vectors.strip();
    out.choices.push_back({sym::logical_and(strip->conditions), strip->aligned, {}});
    out.choices.back().launches.push_back(vectors.emit(own));
  }
  if (out.choices.empty() || !out.choices.back().condition.is_const(1) ||
      !out.choices.back().aligned.empty()) {
    out.choices.emplace_back();
    out.choices.back().launches.push_back(plain.emit(std::nullopt));
  }
  return out;
}

DeviceNest emit_nest(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  if (kernels::is_matrix(nest.schedule)) return emit_matrix(program, nest, target);
  if (kernels::is_flash(nest.schedule)) return emit_flash(program, nest, target);
  if (schedule::parse_plan(nest.schedule).team > 1) return emit_teams(program, nest, target);
  return emit_points(program, nest, target);
}

}  // namespace stridec::codegen::cuda
