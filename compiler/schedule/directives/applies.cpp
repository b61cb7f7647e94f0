#include "compiler/schedule/directives/applies.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

std::string text_of(const loop::Directive& directive) {
  return loop::to_string(loop::Schedule{"", {directive}});
}

std::string names(const std::vector<loop::Dim>& dims) {
  return join(dims, ", ", [](const loop::Dim& dim) { return dim.var.name(); });
}

// Which of these dims has an extent that depends on `var`, as a reason; "" if none has.
std::string depending(const std::vector<loop::Dim>& dims, Expr var) {
  for (const loop::Dim& dim : dims)
    if (sym::depends_on(dim.extent, var)) return cat("the range of ", dim.var.name(), " depends on it");
  return "";
}
std::string depending(const loop::Block& block, Expr var) {
  std::string reason;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    if (reason.empty()) reason = depending(loop::dims_of(stmt), var);
  });
  return reason;
}

bool is_power_of_two(int64_t n) { return n >= 1 && (n & (n - 1)) == 0; }

// Checks the directives of one nest in the order in which they are applied.
class Asker {
 public:
  Asker(const loop::Program& program, const loop::Nest& nest)
      : program_(program), original_(nest), nest_(reshaped(program, nest, {})) {}

  std::string ask(const std::vector<loop::Directive>& directives) {
    for (const bool shapes : {true, false})
      for (const loop::Directive& directive : directives) {
        const bool is_shape =
            directive.name == "reorder" || directive.name == "merge" || directive.name == "split";
        if (is_shape != shapes) continue;
        const std::string reason = is_shape ? reshape(directive) : learn(directive);
        if (!reason.empty()) return cat("'", text_of(directive), "': ", reason);
      }
    for (const loop::Directive& directive : directives)
      if (const std::string reason = map(directive); !reason.empty())
        return cat("'", text_of(directive), "': ", reason);
    return "";
  }

 private:
  const loop::Dim* find(Expr var) const {
    for (const loop::Dim& dim : nest_.dims)
      if (dim.var == var) return &dim;
    return nullptr;
  }
  std::string unknown(Expr var) const {
    return cat("the nest has no parallel dim ", var.name(), ", but ",
               nest_.dims.empty() ? "none" : names(nest_.dims));
  }
  // Which of `these` is not a parallel dim, or is named twice, as a reason; "" if none is.
  std::string misnamed(const LoopPlan::Dims& these) const {
    for (size_t i = 0; i < these.size(); ++i) {
      if (!find(these[i])) return unknown(these[i]);
      if (std::find(these.begin(), these.begin() + static_cast<std::ptrdiff_t>(i), these[i]) !=
          these.begin() + static_cast<std::ptrdiff_t>(i))
        return cat(these[i].name(), " is named twice");
    }
    return "";
  }

  // ---- directives that reshape the nest ----

  std::string reshape(const loop::Directive& directive) {
    LoopPlan one;
    if (const std::string reason = parsed(directive, one); !reason.empty()) return reason;
    if (!one.reorder.empty()) {
      if (!plan_.reshapes.empty()) return "it follows a merge or a split";
      if (!plan_.reorder.empty()) return "it occurs twice";
      if (const std::string reason = misnamed(one.reorder); !reason.empty()) return reason;
      if (one.reorder.size() != nest_.dims.size()) return cat("the dims are ", names(nest_.dims));
      if (updates()) return "points update memory, one after the other";
      for (size_t i = 0; i < one.reorder.size(); ++i)
        for (size_t j = i + 1; j < one.reorder.size(); ++j)
          if (sym::depends_on(find(one.reorder[i])->extent, one.reorder[j]))
            return cat("the range of ", one.reorder[i].name(), " depends on ", one.reorder[j].name());
      plan_.reorder = one.reorder;
    } else if (one.reshapes.empty()) {
      return "it names no dim";
    } else if (const auto& split = one.reshapes[0].split) {
      const loop::Dim* dim = find(split->dim);
      if (!dim) return unknown(split->dim);
      if (program_.facts.known_divisor(dim->extent) % split->factor != 0)
        return cat(split->factor, " is not known to divide ", sym::to_string(dim->extent));
      plan_.reshapes.push_back(one.reshapes[0]);
    } else {
      const LoopPlan::Dims& merge = one.reshapes[0].merge;
      if (merge.size() < 2) return "it needs two dims";
      if (const std::string reason = misnamed(merge); !reason.empty()) return reason;
      for (size_t i = 0; i + 1 < merge.size(); ++i)
        if (find(merge[i + 1]) != find(merge[i]) + 1)
          return cat(merge[i + 1].name(), " does not follow ", merge[i].name());
      loop::Nest now = nest_;
      for (size_t i = merge.size() - 1; i > 0; --i) {
        std::string reason;
        if (!can_merge(program_, now, merge[i - 1], merge.back(), &reason)) return reason;
        now = with_merged(program_, std::move(now), {{merge[i - 1], merge.back()}});
      }
      plan_.reshapes.push_back(one.reshapes[0]);
    }
    nest_ = reshaped(program_, original_, plan_);
    return "";
  }

  std::string parsed(const loop::Directive& directive, LoopPlan& one) const {
    try {
      one = parse_plan({"", {directive}});
    } catch (const Error& error) {
      return error.diagnostic.message;
    }
    return "";
  }

  // ---- directives that map the reshaped nest ----

  // Collects the rest of the plan before any of it is checked, since directives may be in any order.
  std::string learn(const loop::Directive& directive) {
    LoopPlan one;
    if (const std::string reason = parsed(directive, one); !reason.empty()) return reason;
    if (one.team != 1 || one.columns || one.tile || one.few || !one.few_points.empty())
      return "it is for a GPU";
    if (directive.name != "vectorize" && directive.name != "accumulators" && directive.name != "tile" &&
        !once_.insert(directive.name).second)
      return "it occurs twice";
    // Indices and sums of them stay within 64 bits.
    constexpr int64_t kMost = int64_t{1} << 40, kMostTogether = 16;
    for (const int64_t number : {one.chunk, one.grain, one.blocks.empty() ? 1 : one.blocks[0].factor})
      if (number > kMost) return cat("its number is ", kMost, " at most");
    if (!one.points.empty() && one.points[0].factor > kMostTogether)
      return cat("its number is ", kMostTogether, " at most");
    if (!one.tasks.empty()) plan_.tasks = one.tasks;
    if (directive.name == "chunk") plan_.chunk = one.chunk;
    if (!one.order.empty()) plan_.order = one.order;
    for (const auto& [var, lanes] : one.width)
      if (!plan_.width.emplace(var, lanes).second) return "it occurs twice";
    if (one.single) plan_.single = one.single;
    for (const auto& [var, count] : one.accumulators)
      if (!plan_.accumulators.emplace(var, count).second) return "it occurs twice";
    if (one.transpose) plan_.transpose = one.transpose;
    for (const LoopPlan::Split& block : one.blocks) {
      for (const LoopPlan::Split& other : plan_.blocks)
        if (other.dim == block.dim) return "it occurs twice";
      plan_.blocks.push_back(block);
    }
    if (!one.points.empty()) plan_.points = one.points;
    return "";
  }

  std::string map(const loop::Directive& directive) {
    const LoopPlan one = parse_plan({"", {directive}});
    if (directive.name == "tasks") return tasks();
    if (directive.name == "chunk")
      return plan_.tasks.empty() && plan_.chunk > 1 ? "no dim is handed out in tasks" : "";
    if (directive.name == "order") return order();
    if (directive.name == "vectorize") return vectorize(one.width.begin()->first, one.width.begin()->second);
    if (directive.name == "single")
      return lanes() == one.single ? "" : cat("lanes do not run along ", one.single->name());
    if (directive.name == "accumulators")
      return accumulators(one.accumulators.begin()->first, one.accumulators.begin()->second);
    if (directive.name == "transpose") return transpose(one.transpose->first, one.transpose->second);
    if (directive.name == "tile") return tile(one.blocks[0].dim);
    if (directive.name == "points") return points(one.points[0].dim);
    return "";
  }

  std::string tasks() const {
    if (const std::string reason = misnamed(plan_.tasks); !reason.empty()) return reason;
    if (updates()) return "points update memory, one after the other";
    for (const Expr& var : plan_.tasks)
      if (sym::has_index(find(var)->extent)) return cat("the range of ", var.name(), " depends on a dim");
    return "";
  }

  std::string order() const {
    if (const std::string reason = misnamed(plan_.order); !reason.empty()) return reason;
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      if (is_task(plan_.order[i])) return cat(plan_.order[i].name(), " is one of the tasks' dims");
      if (lanes() == plan_.order[i]) return cat("lanes run along ", plan_.order[i].name());
      for (size_t j = i + 1; j < plan_.order.size(); ++j)
        if (sym::depends_on(find(plan_.order[i])->extent, plan_.order[j]))
          return cat("the range of ", plan_.order[i].name(), " depends on ", plan_.order[j].name());
    }
    return "";
  }

  std::string vectorize(Expr var, int width) const {
    if (!is_power_of_two(width) || width < 2 || width > 64)
      return "the number of lanes must be 2, 4, 8, 16, 32 or 64";
    for (const std::string& reason : {depending(nest_.dims, var), depending(nest_.body, var)})
      if (!reason.empty()) return reason;
    if (find(var)) {
      for (const auto& [other, lanes] : plan_.width)
        if (other != var && find(other)) return cat("lanes run along ", other.name());
      if (is_task(var) && (plan_.tasks.back() != var || plan_.chunk == 1))
        return cat("a task has one point of ", var.name());
      return "";
    }
    return lanes_inside(nest_.body, var, lanes());
  }

  // Checks lanes along a dim of a loop in the block. `around`: the dim along which an enclosing loop has
  // lanes.
  std::string lanes_inside(const loop::Block& block, Expr var, std::optional<Expr> around) const {
    for (const loop::Stmt& stmt : block) {
      const loop::Block* body = loop::body_of(stmt);
      if (!body) continue;
      std::optional<Expr> here = around;
      bool own = false;
      for (const loop::Dim& dim : loop::dims_of(stmt)) {
        own = own || dim.var == var;
        if (dim.var != var && plan_.width.count(dim.var)) here = dim.var;
      }
      if (own) {
        if (std::holds_alternative<loop::Scan>(stmt.node))
          return "a scan takes its steps one after the other";
        if (here) return cat("lanes run along ", here->name());
        return loop::stores_apart(*body, var) ? "" : "its rounds store to the same places";
      }
      const std::string reason = lanes_inside(*body, var, here);
      if (reason != kNotThere) return reason;
    }
    return &block == &nest_.body ? unknown(var) : kNotThere;
  }

  std::string accumulators(Expr var, int count) const {
    constexpr int kMost = 64;  // each is a register, or should be
    if (count > kMost) return cat("its number is ", kMost, " at most");
    if (!is_power_of_two(count)) return "its number must be a power of two";
    if (!plan_.width.count(var) || find(var)) return cat("no reduction has lanes along ", var.name());
    bool found = false;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (!std::holds_alternative<loop::Reduce>(stmt.node)) return;
      for (const loop::Dim& dim : loop::dims_of(stmt)) found = found || dim.var == var;
    });
    return found ? "" : cat("no reduction has lanes along ", var.name());
  }

  std::string transpose(Expr across, int size) const {
    const std::optional<Expr> along = lanes();
    if (!find(across)) return unknown(across);
    if (!along || *along == across) return "no lanes run along another parallel dim";
    if (size != plan_.width.at(*along))
      return cat("its blocks are as wide as the lanes, ", plan_.width.at(*along));
    if (is_task(across)) return cat(across.name(), " is one of the tasks' dims");
    if (const std::string inside = depending(nest_.dims, across); !inside.empty()) return inside;
    return transposable_loads(program_, nest_, across, *along).empty()
               ? cat("nothing is loaded along ", across.name(), " that steps along ", along->name())
               : "";
  }

  std::string tile(Expr var) const {
    const loop::Dim* dim = find(var);
    if (!dim) return unknown(var);
    if (is_task(var)) return cat(var.name(), " is one of the tasks' dims");
    if (sym::has_index(dim->extent)) return cat("the range of ", var.name(), " depends on a dim");
    return "";
  }

  std::string points(Expr var) const {
    const loop::Dim* dim = find(var);
    if (!dim) return unknown(var);
    if (plan_.transpose) return "the schedule transposes loads";
    if (lanes() == var) return cat("lanes run along ", var.name());
    for (const auto& [other, width] : plan_.width)
      if (!find(other)) return cat("lanes run along ", other.name(), ", inside of a point");
    if (sym::has_index(dim->extent)) return cat("the range of ", var.name(), " depends on a dim");
    if (is_task(var)) {
      if (plan_.tasks.back() != var || (plan_.tasks.size() > 1 && plan_.chunk == 1))
        return cat("a task has one point of ", var.name());
      for (const loop::Dim& other : nest_.dims)
        if (!is_task(other.var) && lanes() != other.var)
          return cat("a task has a loop over ", other.var.name(), " inside of it");
    } else if (const std::string inside = depending(nest_.dims, var); !inside.empty()) {
      return inside;
    }
    std::string reason;
    return can_unroll_and_jam(program_, nest_, var, &reason) ? "" : reason;
  }

  std::optional<Expr> lanes() const {
    for (const auto& [var, width] : plan_.width)
      if (find(var)) return var;
    return std::nullopt;
  }
  bool is_task(Expr var) const {
    return std::find(plan_.tasks.begin(), plan_.tasks.end(), var) != plan_.tasks.end();
  }
  bool updates() const { return loop::effects_of(nest_).updates; }

  static constexpr const char* kNotThere = "?";

  const loop::Program& program_;
  const loop::Nest& original_;
  loop::Nest nest_;  // after the reshapes so far
  LoopPlan plan_;
  std::set<std::string> once_;
};

}  // namespace

std::string why_illegal(const loop::Program& program, const loop::Nest& nest,
                        const loop::Schedule& schedule) {
  return Asker(program, nest).ask(schedule.directives);
}

std::vector<const loop::Load*> transposable_loads(const loop::Program& program, const loop::Nest& nest,
                                                  Expr across, Expr lanes) {
  const sym::Facts facts = loop::facts_of(program, nest);
  std::vector<const loop::Load*> out;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || !load->access.mask.is_const(1) ||
        program[load->access.buffer].storage == loop::Storage::kLocal)
      continue;
    const auto along = loop::stride_of(program, load->access, across, facts);
    const auto step = loop::stride_of(program, load->access, lanes, facts);
    if (along && along->is_const(1) && step && !step->is_const(0) && !step->is_const(1) &&
        !sym::has_index(*step))
      out.push_back(load);
  }
  return out;
}

bool can_unroll_and_jam(const loop::Program& program, const loop::Nest& nest, Expr dim, std::string* reason) {
  std::string why;
  for (const loop::BufferId id : loop::buffers_of(nest))
    if (program[id].storage == loop::Storage::kLocal) why = "points have memory of their own";
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update)
      why = "points update memory, one after the other";
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node);
        bind && bind->mode == loop::Bind::OutOfRange::kError &&
        !loop::holds_any(*bind, nest.values[bind->value.value].dtype))
      why = "a point may end the run before the next one begins";
    if (std::holds_alternative<loop::Scan>(stmt.node)) why = "a scan takes its steps one after the other";
  });
  if (why.empty()) why = depending(nest.body, dim);
  if (reason) *reason = why;
  return why.empty();
}

}  // namespace stridec::schedule
