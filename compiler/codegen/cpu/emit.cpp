#include "compiler/codegen/cpu/emit.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/codegen/cpu/contraction_copy.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/directives/applies.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cpu {
namespace {

using sym::Expr;

// The vectorised parallel dim of a reshaped nest and its lanes; null: there is none.
struct VectorDim {
  const loop::Dim* dim = nullptr;
  int lanes = 1;
};
VectorDim vector_dim(const loop::Nest& nest, const schedule::LoopPlan& plan) {
  VectorDim found;
  for (const auto& [var, lanes] : plan.width)
    for (const loop::Dim& dim : nest.dims)
      if (dim.var == var) found = {&dim, lanes};
  return found;
}

// A local buffer of a nest. It has one copy per point, interleaved across lanes: on the stack if it is small,
// otherwise in scratch.
struct LocalBuffer {
  loop::BufferId id;
  Expr bytes;
  bool on_stack() const {
    constexpr int64_t kStackBytes = 4096;
    const std::optional<int64_t> known = sym::as_const(bytes);
    return known && *known <= kStackBytes;
  }
};
std::vector<LocalBuffer> locals_of(const loop::Program& program, const loop::Nest& nest, int lanes) {
  std::vector<LocalBuffer> locals;
  for (const loop::BufferId id : loop::buffers_of(nest)) {
    const loop::Buffer& buffer = program[id];
    if (buffer.storage == loop::Storage::kLocal)
      locals.push_back({id, schedule::extent_in_elements(buffer) * lanes * byte_size(buffer.dtype)});
  }
  return locals;
}

struct LoopEmitter {
  const loop::Program& program;
  const schedule::LoopPlan plan;
  const loop::Nest nest;  // after merging and splitting dims
  KernelText text;
  Body body;
  std::vector<loop::Dim> tasks, loops;
  std::optional<loop::Dim> lanes;  // the vectorised parallel dim
  int width = 1;
  int64_t chunk = 1;
  std::optional<Expr> together;  // the dim that is unrolled and jammed
  std::vector<Body> points;      // its points, while they are printed
  std::set<loop::ValueId> apart;
  std::map<Expr, std::pair<std::string, std::string>, sym::ExprLess> ranges;  // of tiled dims
  // Loop-invariant statements, by the number of enclosing `loops`: they are printed at that level. LLVM would
  // not hoist them, because a store may alias a load's memory as far as it can tell.
  std::vector<std::vector<const loop::Stmt*>> outer;
  std::set<const loop::Stmt*> inner;  // all others

  LoopEmitter(const loop::Program& program, const loop::Nest& original, const CpuTarget& target)
      : program(program),
        plan(schedule::parse_plan(original.schedule)),
        nest(schedule::reshaped(program, original, plan)),
        text(program, target),
        body(text, nest, {plan.width, plan.accumulators}) {
    const std::string why = schedule::why_illegal(program, original, original.schedule);
    if (!why.empty())
      fail(ErrorKind::kInternal, "bad-schedule",
           cat("the schedule of nest '", original.name, "' does not apply: ", why));
  }

  const loop::Dim* find(Expr var) const {
    for (const loop::Dim& dim : nest.dims)
      if (dim.var == var) return &dim;
    return nullptr;
  }

  // Assigns the parallel dims to tasks, loops and lanes, for a schedule that applies
  // (schedule/directives/applies.h).
  void assign() {
    std::set<Expr, sym::ExprLess> used;
    for (const Expr& var : plan.tasks) {
      tasks.push_back(*find(var));
      used.insert(var);
    }
    chunk = plan.chunk;
    if (const VectorDim found = vector_dim(nest, plan); found.dim) {
      lanes = *found.dim;
      width = found.lanes;
    }
    auto add = [&](const loop::Dim& dim) {
      if (used.insert(dim.var).second && !(lanes && dim.var == lanes->var)) loops.push_back(dim);
    };
    for (const Expr& var : plan.order) add(*find(var));
    for (const loop::Dim& dim : nest.dims) add(dim);
    // A loop's extent may depend on dims that precede it.
    for (size_t i = 0; i < loops.size(); ++i)
      for (size_t j = i + 1; j < loops.size(); ++j)
        if (sym::depends_on(loops[i].extent, loops[j].var)) std::swap(loops[i], loops[j]);
    std::optional<Expr> innermost;
    if (plan.transpose) innermost = plan.transpose->first;
    if (!plan.points.empty()) innermost = together = plan.points[0].dim;
    for (size_t i = 0; innermost && i + 1 < loops.size(); ++i)
      if (loops[i].var == *innermost) std::swap(loops[i], loops[i + 1]);
  }

  // Sorts the statements by the loops that they depend on. Loops and accesses to memory that the nest writes
  // stay innermost.
  void sort_statements() {
    const size_t innermost = loops.size() + (lanes ? 1 : 0);
    outer.resize(innermost);
    std::map<Expr, size_t, sym::ExprLess> of_var;
    for (const loop::Dim& dim : tasks) of_var[dim.var] = 0;
    for (size_t i = 0; i < loops.size(); ++i) of_var[loops[i].var] = i + 1;
    if (lanes) of_var[lanes->var] = innermost;
    // Blocks iterate over both of their dims inside (print_blocks).
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
      // The check that there are any points is printed with the statements.
      for (size_t i = level; i < loops.size(); ++i)
        if (sym::has_index(loops[i].extent)) level = i + 1;
      if (level < innermost && lanes && sym::has_index(lanes->extent)) level = innermost;
      loop::for_each_result(stmt, [&](loop::ValueId id) { of_value[id.value] = level; });
      loop::for_each_index(stmt, [&](Expr var) { of_var[var] = level; });
      level < innermost ? outer[level].push_back(&stmt) : void(inner.insert(&stmt));
    }
  }

  void print_inner() {
    std::vector<const loop::Stmt*> stmts;
    for (const loop::Stmt& stmt : nest.body)
      if (inner.count(&stmt)) stmts.push_back(&stmt);
    print_all(stmts);
  }
  void print_all(const std::vector<const loop::Stmt*>& stmts) {
    if (!points.empty()) return Body::print_together(points, *together, stmts, apart);
    for (const loop::Stmt* stmt : stmts) body.print(*stmt);
  }

  // Prints the points of a dim from `from` to `to`, several at once if the schedule says so.
  void print_points(const loop::Dim& dim, const std::string& from, const std::string& to,
                    const std::function<void()>& inside) {
    const std::string i = text.fresh("i");
    std::string first = cat("int64_t ", i, " = ", from);
    if (together == dim.var) {
      const int64_t count = plan.points[0].factor;
      text.line(cat(first, ";"));
      first.clear();
      text.open(cat("for (; ", i, " + ", count, " <= ", to, "; ", i, " += ", count, ")"));
      for (int64_t u = 0; u < count; ++u) {
        points.push_back(body);
        points.back().set_index(dim.var, u ? cat("(", i, " + ", u, ")") : i);
      }
      inside();
      points.clear();
      apart.clear();
      text.close();
    }
    text.open(cat("for (", first, "; ", i, " < ", to, "; ++", i, ")"));
    body.set_index(dim.var, i);
    inside();
    text.close();
  }

  void declare_locals() {
    for (const LocalBuffer& local : locals_of(program, nest, width)) {
      const loop::Buffer& buffer = program[local.id];
      const std::string name = text.fresh("l"), type = text.storage_type(buffer.dtype);
      if (local.on_stack())
        text.line(cat("alignas(64) ", type, " ", name, "[",
                      std::max<int64_t>(local.bytes.value() / byte_size(buffer.dtype), 1), "];"));
      else
        text.line(cat(type, "* const ", name, " = (", type, "*)", text.scratch(local.bytes), ";"));
      body.set_buffer(local.id, name, buffer.strides);
    }
  }

  Kernel emit() {
    assign();
    sort_statements();
    declare_locals();
    Expr count = 1;
    for (size_t i = 0; i < tasks.size(); ++i)
      count *= i + 1 == tasks.size() ? sym::ceildiv(tasks[i].extent, chunk) : tasks[i].extent;

    if (tasks.size() == 1) {
      // Consecutive tasks form one range.
      const loop::Dim& dim = tasks[0];
      const std::string n = body.index(dim.extent), times = chunk == 1 ? "" : cat(" * ", chunk);
      text.open_ranges();
      text.line(cat("const int64_t from = first_task", times,
                    ", to = ", chunk == 1 ? "end_task" : cat("sd_min(end_task", times, ", ", n, ")"), ";"));
      print_range(dim, "from", "to");
      text.close();
    } else if (!tasks.empty()) {
      text.open_tasks();
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
        print_tiles(0);
      } else {
        text.line(cat("const int64_t from = t", last, " * ", chunk, ", to = sd_min(from + ", chunk, ", ",
                      body.index(tasks[last].extent), ");"));
        print_range(tasks[last], "from", "to");
      }
      text.close_tasks();
    } else {
      print_tiles(0);
    }
    const Expr steps = loop::cost_of(program, nest).steps;
    return text.finish(count, sym::max(1, sym::floordiv(plan.grain * count, sym::max(1, steps))));
  }

  // Prints the points of the last task dim that belong to a task.
  void print_range(const loop::Dim& dim, const std::string& from, const std::string& to) {
    if (lanes && lanes->var == dim.var) {
      lanes_from = from;
      lanes_to = to;
      return print_tiles(0);
    }
    print_points(dim, from, to, [&] { print_tiles(0); });
  }
  std::string lanes_from = "0", lanes_to;

  // A divisor of the start positions of lane ranges.
  int64_t lanes_step() const {
    for (const schedule::LoopPlan::Split& block : plan.blocks)
      if (block.dim == lanes->var) return block.factor;
    return chunk;
  }

  // Lanes of the narrow strip that ends a row, 0: none. Where a strip takes several registers for the nest's
  // widest elements, the lanes of one; otherwise, for a known number of points, half of the strip's.
  int narrow_width(bool known) const {
    int bytes = 4;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const loop::Access* access = loop::access_of(stmt))
        bytes = std::max(bytes, byte_size(program[access->buffer].dtype));
    });
    const int one = text.target().lanes(bytes);
    return one < width ? one : known ? width / 2 : 0;
  }

  // Prints the loops of a task over tiles.
  void print_tiles(size_t next) {
    if (next == plan.blocks.size()) return print_loop(0);
    const auto& [var, size] = plan.blocks[next];
    const std::string i = text.fresh("i"), n = body.index(find(var)->extent), end = text.fresh("n");
    text.open(cat("for (int64_t ", i, " = 0; ", i, " < ", n, "; ", i, " += ", size, ")"));
    text.line(cat("const int64_t ", end, " = sd_min(", i, " + ", size, ", ", n, ");"));
    if (lanes && lanes->var == var)
      lanes_from = i, lanes_to = end;
    else
      ranges[var] = {i, end};
    print_tiles(next + 1);
    text.close();
  }

  // ---- transposes ----

  // Blocks of width x width points: crossing loads are loaded by rows and transposed in registers. Edges are
  // handled as elsewhere.
  void print_blocks(const loop::Dim& across) {
    const std::vector<const loop::Load*> loads =
        schedule::transposable_loads(program, nest, across.var, lanes->var);
    const auto [begin, n] = range_of(across);
    auto one_by_one = [&](const std::string& from) {
      const std::string u = text.fresh("i");
      text.open(cat("for (int64_t ", u, " = ", from, "; ", u, " < ", n, "; ++", u, ")"));
      body.set_index(across.var, u);
      print_inner();
      text.close();
    };
    const std::string to = lanes_to.empty() ? body.index(lanes->extent) : lanes_to;
    body.print_strips(
        {.var = lanes->var, .from = lanes_from, .to = to, .count = {}, .width = width},
        [&](const std::string&, const std::string& live) {
          if (!live.empty() || body.width() == 1) return one_by_one(begin);
          const std::string u = text.fresh("i"), k = text.fresh("u");
          text.line(cat("int64_t ", u, " = ", begin, ";"));
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

  void assume(const std::vector<Expr>& conditions) {
    body.assume(conditions);
    for (Body& point : points) point.assume(conditions);
  }

  // Conjuncts of the body's own masks that depend only on dims outside the lanes; none if few accesses have
  // such conjuncts.
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
        if (!std::all_of(vars.begin(), vars.end(), [&](Expr var) {
              return !sym::is_index(var) || (find(var) && var != lanes->var && var != together);
            }))
          continue;
        any = true;
        if (std::find(found.begin(), found.end(), part) == found.end()) found.push_back(part);
      }
      masked += any;
    }
    return masked < kMany ? std::vector<Expr>() : found;
  }

  std::pair<std::string, std::string> range_of(const loop::Dim& dim) {
    const auto found = ranges.find(dim.var);
    return found == ranges.end() ? std::pair(std::string("0"), body.index(dim.extent)) : found->second;
  }

  // Prints the loops from `next` on, preceded by the statements that are invariant in them.
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
    print_all(outer[next]);
    print_within(next);
    text.close();
  }

  void print_within(size_t next) {
    if (next + 1 == loops.size() && plan.transpose) {
      text.open("");
      print_blocks(loops.back());
      return text.close();
    }
    if (next < loops.size()) {
      const auto [from, to] = range_of(loops[next]);
      return print_points(loops[next], from, to, [&] { print_loop(next + 1); });
    }
    if (!lanes) return print_inner();
    if (!loops.empty() || !tasks.empty()) text.open("");
    const std::string to = lanes_to.empty() ? body.index(lanes->extent) : lanes_to;
    const std::optional<int64_t> count = lanes_to.empty() ? sym::as_const(lanes->extent) : std::nullopt;
    const bool aligned = lanes_to.empty() || lanes_step() % width == 0;
    auto strips = [&] {
      (points.empty() ? body : points[0])
          .print_strips({.var = lanes->var,
                         .from = lanes_from,
                         .to = to,
                         .count = count,
                         .width = width,
                         .aligned = aligned,
                         .single = plan.single == lanes->var,
                         .narrow = narrow_width(count.has_value())},
                        [&](const std::string&, const std::string&) {
                          for (size_t p = 1; p < points.size(); ++p) points[p].follow(points[0], lanes->var);
                          print_inner();
                        });
    };
    // Many masks that all lanes share hold almost everywhere: test them once, together.
    if (const std::vector<Expr> shared = shared_conditions(); !shared.empty()) {
      text.open(
          cat("if (", join(shared, " & ", [&](Expr part) { return cat("(", body.index(part), ")"); }), ")"));
      assume(shared);
      strips();
      assume({});
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

Kernel emit_loops(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return LoopEmitter(program, nest, target).emit();
}

Expr loops_scratch(const loop::Program& program, const loop::Nest& nest) {
  if (locals_of(program, nest, 1).empty()) return 0;
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  const loop::Nest reshaped = schedule::reshaped(program, nest, plan);
  std::vector<Expr> pieces;
  for (const LocalBuffer& local : locals_of(program, reshaped, vector_dim(reshaped, plan).lanes))
    if (!local.on_stack()) pieces.push_back(local.bytes);
  return scratch_bytes(pieces);
}

}  // namespace stridec::codegen::cpu
