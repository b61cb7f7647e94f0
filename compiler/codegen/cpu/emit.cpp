#include "compiler/codegen/cpu/emit.h"

#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/body.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/schedule.h"

namespace stridec::codegen::cpu {
namespace {

using sym::Expr;

struct LoopEmitter {
  const loop::Program& program;
  const schedule::LoopPlan plan;
  const loop::Nest nest;  // after merges and splits
  KernelText text;
  Body body;
  std::vector<loop::Dim> tasks, loops;
  std::optional<loop::Dim> lanes;  // the parallel dim along which vectors run
  int width = 1;
  int64_t chunk = 1;

  LoopEmitter(const loop::Program& program, const loop::Nest& original, const CpuTarget& target)
      : program(program),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, target),
        body(text, nest, {plan.width, plan.accumulators}) {}

  const loop::Dim* find(Expr var) const {
    for (const loop::Dim& dim : nest.dims)
      if (dim.var == var) return &dim;
    return nullptr;
  }

  // Sorts the parallel dims into tasks, loops and lanes.
  void assign() {
    const bool serial = updates_memory(nest);
    std::set<Expr, sym::ExprLess> used;
    if (!serial)
      for (const Expr& var : plan.tasks)
        if (const loop::Dim* dim = find(var); dim && !sym::has_index(dim->extent)) {
          tasks.push_back(*dim);
          used.insert(var);
        }
    chunk = tasks.empty() ? 1 : plan.chunk;
    for (const auto& [var, lanes_of] : plan.width)
      if (const loop::Dim* dim = find(var); dim && lanes_of > 1) {
        // A task's own dim takes lanes only where a task has several points of it.
        if (used.count(var) && (tasks.back().var != var || chunk == 1)) continue;
        lanes = *dim;
        width = lanes_of;
      }
    auto add = [&](const loop::Dim& dim) {
      if (used.insert(dim.var).second && !(lanes && dim.var == lanes->var)) loops.push_back(dim);
    };
    for (const Expr& var : plan.order)
      if (const loop::Dim* dim = find(var)) add(*dim);
    for (const loop::Dim& dim : nest.dims) add(dim);
    // A loop's extent may depend on dims that are written before it.
    for (size_t i = 0; i < loops.size(); ++i)
      for (size_t j = i + 1; j < loops.size(); ++j)
        if (sym::depends_on(loops[i].extent, loops[j].var)) std::swap(loops[i], loops[j]);
    if (lanes)
      for (const loop::Dim& dim : loops)
        if (sym::depends_on(dim.extent, lanes->var)) {
          loops.push_back(*lanes);
          lanes.reset();
          width = 1;
          break;
        }
  }

  // Memory of local buffers: a point's own, of all lanes side by side.
  void declare_locals() {
    std::set<loop::BufferId> seen;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || program[access->buffer].storage != loop::Storage::kLocal ||
          !seen.insert(access->buffer).second)
        return;
      const loop::Buffer& buffer = program[access->buffer];
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      const Expr elements = schedule::extent_in_elements(buffer) * width;
      const std::optional<int64_t> count = sym::as_const(elements);
      if (count && *count * byte_size(buffer.dtype) <= kStackBytes)
        text.line(cat("alignas(64) ", type, " ", name, "[", std::max<int64_t>(*count, 1), "];"));
      else
        text.line(cat(type, "* const ", name, " = (", type, "*)",
                      text.scratch(elements * byte_size(buffer.dtype)), ";"));
      body.set_buffer(access->buffer, name, buffer.strides);
    });
  }
  static constexpr int64_t kStackBytes = 4096;

  Kernel emit() {
    assign();
    declare_locals();
    Expr count = 1;
    for (size_t i = 0; i < tasks.size(); ++i)
      count *= i + 1 == tasks.size() ? sym::ceildiv(tasks[i].extent, chunk) : tasks[i].extent;

    if (tasks.size() == 1) {
      // Neighbouring tasks are one range.
      const loop::Dim& dim = tasks[0];
      const std::string n = body.index(dim.extent), times = chunk == 1 ? "" : cat(" * ", chunk);
      text.line(cat("const int64_t from = begin", times,
                    ", to = ", chunk == 1 ? "end" : cat("sd_min(end", times, ", ", n, ")"), ";"));
      print_range(dim, "from", "to");
    } else if (!tasks.empty()) {
      text.open("for (int64_t task = begin; task < end; ++task)");
      text.line("int64_t rest = task;");
      for (size_t i = tasks.size(); i-- > 1;) {
        const std::string n =
            body.index(i + 1 == tasks.size() ? sym::ceildiv(tasks[i].extent, chunk) : tasks[i].extent);
        text.line(cat("const int64_t t", i, " = rest % ", n, ";"));
        text.line(cat("rest /= ", n, ";"));
      }
      text.line("const int64_t t0 = rest;");
      for (size_t i = 0; i + 1 < tasks.size(); ++i) body.set_index(tasks[i].var, cat("t", i));
      const size_t last = tasks.size() - 1;
      if (chunk == 1) {
        body.set_index(tasks[last].var, cat("t", last));
        print_loop(0);
      } else {
        text.line(cat("const int64_t from = t", last, " * ", chunk, ", to = sd_min(from + ", chunk, ", ",
                      body.index(tasks[last].extent), ");"));
        print_range(tasks[last], "from", "to");
      }
      text.close();
    } else {
      print_loop(0);
    }
    return text.finish(count, plan.grain);
  }

  // The points of the last task dim that fall to a task.
  void print_range(const loop::Dim& dim, const std::string& from, const std::string& to) {
    if (lanes && lanes->var == dim.var) {
      lanes_from = from;
      lanes_to = to;
      return print_loop(0);
    }
    const std::string i = text.fresh("i");
    text.open(cat("for (int64_t ", i, " = ", from, "; ", i, " < ", to, "; ++", i, ")"));
    body.set_index(dim.var, i);
    print_loop(0);
    text.close();
  }
  std::string lanes_from = "0", lanes_to;

  void print_loop(size_t next) {
    if (next < loops.size()) return body.print_loops({loops[next]}, 0, [&] { print_loop(next + 1); });
    if (!lanes) return body.print(nest.body);
    if (!loops.empty() || !tasks.empty()) text.open("");
    const std::string to = lanes_to.empty() ? body.index(lanes->extent) : lanes_to;
    const std::optional<int64_t> points = lanes_to.empty() ? sym::as_const(lanes->extent) : std::nullopt;
    body.print_strips(lanes->var, lanes_from, to, points, width, 1,
                      [&](const std::string&, const std::string&) { body.print(nest.body); });
    if (!loops.empty() || !tasks.empty()) text.close();
  }
};

}  // namespace

bool updates_memory(const loop::Nest& nest) {
  bool found = false;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node)) found = found || store->update;
  });
  return found;
}

Kernel emit_loops(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return LoopEmitter(program, nest, target).emit();
}

}  // namespace stridec::codegen::cpu
