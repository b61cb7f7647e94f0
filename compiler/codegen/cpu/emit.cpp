#include "compiler/codegen/cpu/emit.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/loop/analysis.h"
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
  // What is the same at all points of the loops inside, by the number of `loops` around it: printed there. Nobody else moves
  // it, since a store may be to the memory that a load is from, as far as LLVM can tell.
  std::vector<std::vector<const loop::Stmt*>> outer;
  std::set<const loop::Stmt*> inner;  // the others

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
    if (plan.transpose)  // innermost of the loops
      for (size_t i = 0; i + 1 < loops.size(); ++i)
        if (loops[i].var == plan.transpose->first) std::swap(loops[i], loops.back());
    if (lanes)
      for (const loop::Dim& dim : loops)
        if (sym::depends_on(dim.extent, lanes->var)) {
          loops.push_back(*lanes);
          lanes.reset();
          width = 1;
          break;
        }
  }

  // Sorts the statements by the loops that they hang on. Loops and what touches memory that the nest writes stay inside.
  void sort_statements() {
    const size_t innermost = loops.size() + (lanes ? 1 : 0);
    outer.resize(innermost);
    std::map<Expr, size_t, sym::ExprLess> of_var;
    for (const loop::Dim& dim : tasks) of_var[dim.var] = 0;
    for (size_t i = 0; i < loops.size(); ++i) of_var[loops[i].var] = i + 1;
    if (lanes) of_var[lanes->var] = innermost;
    // Blocks run along both of their dims inside (print_blocks).
    if (lanes && plan.transpose && !loops.empty() && loops.back().var == plan.transpose->first)
      of_var[loops.back().var] = innermost;
    std::set<loop::BufferId> written;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) written.insert(store->access.buffer);
    });
    const auto stays = [&](const loop::Stmt& stmt) {
      if (const auto* load = std::get_if<loop::Load>(&stmt.node))
        return program[load->access.buffer].storage == loop::Storage::kLocal ||
               written.count(load->access.buffer) > 0;
      return loop::body_of(stmt) != nullptr || std::holds_alternative<loop::Store>(stmt.node);
    };
    std::vector<size_t> of_value(nest.values.size(), innermost);
    for (const loop::Stmt& stmt : nest.body) {
      size_t level = stays(stmt) ? innermost : 0;
      loop::for_each_use(stmt, [&](loop::ValueId id) { level = std::max(level, of_value[id.value]); });
      loop::for_each_expr(stmt, [&](Expr expr) {
        for (Expr var : sym::free_vars(expr))
          if (const auto found = of_var.find(var); found != of_var.end())
            level = std::max(level, found->second);
      });
      // Whether there are any points is asked where it is printed.
      for (size_t i = level; i < loops.size(); ++i)
        if (sym::has_index(loops[i].extent)) level = i + 1;
      if (level < innermost && lanes && sym::has_index(lanes->extent)) level = innermost;
      loop::for_each_result(stmt, [&](loop::ValueId id) { of_value[id.value] = level; });
      loop::for_each_index(stmt, [&](Expr var) { of_var[var] = level; });
      level < innermost ? outer[level].push_back(&stmt) : void(inner.insert(&stmt));
    }
  }

  void print_inner() {
    for (const loop::Stmt& stmt : nest.body)
      if (inner.count(&stmt)) body.print(stmt);
  }

  // Memory of local buffers: a point's own, of all lanes side by side.
  void declare_locals() {
    for (const loop::BufferId id : loop::buffers_of(nest)) {
      const loop::Buffer& buffer = program[id];
      if (buffer.storage != loop::Storage::kLocal) continue;
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      const Expr elements = schedule::extent_in_elements(buffer) * width;
      const std::optional<int64_t> count = sym::as_const(elements);
      if (count && *count * byte_size(buffer.dtype) <= kStackBytes)
        text.line(cat("alignas(64) ", type, " ", name, "[", std::max<int64_t>(*count, 1), "];"));
      else
        text.line(cat(type, "* const ", name, " = (", type, "*)",
                      text.scratch(elements * byte_size(buffer.dtype)), ";"));
      body.set_buffer(id, name, buffer.strides);
    }
  }
  static constexpr int64_t kStackBytes = 4096;

  Kernel emit() {
    assign();
    sort_statements();
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
    const Expr steps = loop::cost_of(program, nest).steps;
    Kernel kernel = text.finish(count, sym::max(1, sym::floordiv(plan.grain * count, sym::max(1, steps))));
    kernel.uneven = kernel.messages.empty() &&
                    std::any_of(nest.dims.begin(), nest.dims.end(),
                                [](const loop::Dim& dim) { return sym::has_index(dim.extent); });
    return kernel;
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

  // ---- transposes ----

  // Loads at the top of the body that run along `across` where the lanes want them along their own dim.
  std::vector<const loop::Load*> crossing(Expr across) {
    std::vector<const loop::Load*> out;
    for (const loop::Stmt& stmt : nest.body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !load->access.mask.is_const(1) ||
          program[load->access.buffer].storage == loop::Storage::kLocal)
        continue;
      const auto along = loop::stride_of(program, load->access, across, body.facts());
      const auto step = loop::stride_of(program, load->access, lanes->var, body.facts());
      if (along && along->is_const(1) && step && !step->is_const(0) && !step->is_const(1) &&
          !sym::has_index(*step))
        out.push_back(load);
    }
    return out;
  }

  // Blocks of width x width points: the crossing loads by rows, turned in registers. Edges as everywhere
  // else.
  void print_blocks(const loop::Dim& across) {
    const std::vector<const loop::Load*> loads = crossing(across.var);
    const std::string n = body.index(across.extent);
    auto one_by_one = [&](const std::string& from) {
      const std::string u = text.fresh("i");
      text.open(cat("for (int64_t ", u, " = ", from, "; ", u, " < ", n, "; ++", u, ")"));
      body.set_index(across.var, u);
      print_inner();
      text.close();
    };
    const std::string to = lanes_to.empty() ? body.index(lanes->extent) : lanes_to;
    body.print_strips(
        lanes->var, lanes_from, to, std::nullopt, width, 1, [&](const std::string&, const std::string& live) {
          if (!live.empty() || body.width() == 1) return one_by_one("0");
          const std::string u = text.fresh("i"), k = text.fresh("u");
          text.line(cat("int64_t ", u, " = 0;"));
          text.open(cat("for (; ", u, " + ", width, " <= ", n, "; ", u, " += ", width, ")"));
          std::vector<std::string> tiles;
          body.set_index(across.var, u);
          for (const loop::Load* load : loads) {
            const DType dtype = program[load->access.buffer].dtype;
            const Expr step = *loop::stride_of(program, load->access, lanes->var, body.facts());
            tiles.push_back(text.fresh("turned"));
            text.line(cat(text.storage_type(dtype, width), " ", tiles.back(), "[", width, "];"));
            text.line("#pragma clang loop unroll(full)");
            text.line(cat("for (int l = 0; l < ", width, "; ++l) ", tiles.back(), "[l] = *(const ",
                          text.unaligned_type(dtype, width), "*)(", text.pointer(load->access.buffer), " + ",
                          body.offset(load->access), " + ", body.index(step), " * l);"));
            print_turned_square(text, tiles.back(), width);
          }
          text.line("#pragma clang loop unroll(full)");
          text.open(cat("for (int ", k, " = 0; ", k, " < ", width, "; ++", k, ")"));
          body.set_index(across.var, cat("(", u, " + ", k, ")"));
          for (const loop::Stmt& stmt : nest.body) {
            if (!inner.count(&stmt)) continue;
            const auto* load = std::get_if<loop::Load>(&stmt.node);
            const auto found = std::find(loads.begin(), loads.end(), load);
            if (load && found != loads.end())
              body.set_stored(load->result,
                              cat(tiles[static_cast<size_t>(found - loads.begin())], "[", k, "]"),
                              program[load->access.buffer].dtype);
            else
              body.print(stmt);
          }
          text.close();
          text.close();
          one_by_one(u);
        });
  }

  // Parts of the masks of the body's own accesses that depend on dims around the lanes alone; none where few accesses
  // have such.
  std::vector<Expr> shared_conditions() const {
    constexpr int kMany = 8;
    std::vector<Expr> found;
    int masked = 0;
    for (const loop::Stmt& stmt : nest.body) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || access->mask.is_const()) continue;
      bool any = false;
      for (Expr part : loop::conjuncts(access->mask)) {
        const std::vector<Expr> vars = sym::free_vars(part);
        if (!std::all_of(vars.begin(), vars.end(),
                         [&](Expr var) { return !sym::is_index(var) || (find(var) && var != lanes->var); }))
          continue;
        any = true;
        if (std::find(found.begin(), found.end(), part) == found.end()) found.push_back(part);
      }
      masked += any;
    }
    return masked < kMany ? std::vector<Expr>() : found;
  }

  // The loops from this one on, behind what is the same at all their points.
  void print_loop(size_t next) {
    if (next >= outer.size() || outer[next].empty()) return print_within(next);
    std::vector<Expr> sizes;
    for (size_t i = next; i < loops.size(); ++i) sizes.push_back(loops[i].extent);
    if (lanes && lanes_to.empty()) sizes.push_back(lanes->extent);
    std::erase_if(sizes, [&](Expr size) { return program.facts.bounds(size).lo >= 1; });
    text.open(
        sizes.empty()
            ? ""
            : cat("if (", join(sizes, " && ", [&](Expr n) { return cat(body.index(n), " > 0"); }), ")"));
    for (const loop::Stmt* stmt : outer[next]) body.print(*stmt);
    print_within(next);
    text.close();
  }

  void print_within(size_t next) {
    if (next + 1 == loops.size() && lanes && plan.transpose && loops.back().var == plan.transpose->first &&
        !crossing(loops.back().var).empty()) {
      text.open("");
      print_blocks(loops.back());
      return text.close();
    }
    if (next < loops.size()) return body.print_loops({loops[next]}, 0, [&] { print_loop(next + 1); });
    if (!lanes) return print_inner();
    if (!loops.empty() || !tasks.empty()) text.open("");
    const std::string to = lanes_to.empty() ? body.index(lanes->extent) : lanes_to;
    const std::optional<int64_t> points = lanes_to.empty() ? sym::as_const(lanes->extent) : std::nullopt;
    auto strips = [&] {
      body.print_strips(
          lanes->var, lanes_from, to, points, width, 1,
          [&](const std::string&, const std::string&) { print_inner(); },
          lanes_to.empty() || chunk % width == 0, plan.single == lanes->var);
    };
    // Many masks that all lanes share hold nearly everywhere: one test for all of them.
    if (const std::vector<Expr> shared = shared_conditions(); !shared.empty()) {
      text.open(
          cat("if (", join(shared, " & ", [&](Expr part) { return cat("(", body.index(part), ")"); }), ")"));
      body.assume(shared);
      strips();
      body.assume({});
      text.close(" else {");
      text.open("");
      strips();
      text.close();
      text.line("}");
    } else {
      strips();
    }
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
