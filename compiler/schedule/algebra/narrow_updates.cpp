#include "compiler/schedule/algebra/narrow_updates.h"

#include <algorithm>
#include <optional>

#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// The value of `var` where difference == 0, if the variable occurs once, with a factor of 1 or -1.
std::optional<Expr> solution(Expr difference, Expr var, const sym::Facts& facts) {
  const auto linear = sym::linear_in(sym::simplify(difference, facts), var);
  if (!linear || sym::depends_on(linear->rest, var)) return std::nullopt;
  if (linear->coefficient.is_const(1)) return sym::simplify(-linear->rest, facts);
  if (linear->coefficient.is_const(-1)) return sym::simplify(linear->rest, facts);
  return std::nullopt;
}

// The only value of `var` for which the condition can hold: an equation, or two bounds that meet.
std::optional<Expr> pinned(Expr condition, Expr var, const sym::Facts& facts) {
  std::vector<Expr> slack;  // at least 0 where the condition holds
  for (Expr part : loop::conjuncts(condition)) {
    if (part.op() == sym::Op::kEq)
      if (const auto at = solution(part.arg(0) - part.arg(1), var, facts)) return at;
    if (part.op() == sym::Op::kLe) slack.push_back(part.arg(1) - part.arg(0));
    if (part.op() == sym::Op::kLt) slack.push_back(part.arg(1) - part.arg(0) - 1);
  }
  for (size_t a = 0; a < slack.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (sym::simplify(slack[a] + slack[b], facts).is_const(0))
        if (const auto at = solution(slack[a], var, facts)) return at;
  return std::nullopt;
}

class Narrowing {
 public:
  Narrowing(const Nest& nest, const std::vector<Dim>& dims, const Block& body, const sym::Facts& facts)
      : nest_(nest), dims_(dims), body_(body), facts_(facts) {}

  // The index to which the dim can be restricted.
  std::optional<Expr> index_of(const Dim& dim) const {
    std::optional<Expr> index;
    for (const Stmt& stmt : body_) {
      if (loop::body_of(stmt) || std::holds_alternative<loop::Bind>(stmt.node)) return std::nullopt;
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (!store) continue;
      const auto at = changed_at(*store, dim.var);
      if (!at || (index && *index != *at)) return std::nullopt;
      index = at;
    }
    if (!index || !facts_.holds(sym::ge(*index, 0)) || !facts_.holds(sym::lt(*index, dim.extent)))
      return std::nullopt;
    for (const Dim& other : dims_)
      if (sym::depends_on(*index, other.var)) return std::nullopt;
    return index;
  }

 private:
  // The only value of `var` for which the store changes memory.
  std::optional<Expr> changed_at(const loop::Store& store, Expr var) const {
    if (store.update || !store.access.mask.is_const(1)) return std::nullopt;
    const Stmt* sum = loop::definition(body_, store.value);
    const auto* let = sum ? std::get_if<loop::Let>(&sum->node) : nullptr;
    if (!let || let->op != ScalarOp::kAdd) return std::nullopt;
    for (const int old : {0, 1}) {
      const Stmt* from = loop::definition(body_, let->args[static_cast<size_t>(old)]);
      const auto* load = from ? std::get_if<loop::Load>(&from->node) : nullptr;
      if (!load || load->access.buffer != store.access.buffer || load->access.index != store.access.index ||
          !load->access.mask.is_const(1))
        continue;
      if (const auto at = not_zero_at(let->args[static_cast<size_t>(1 - old)], var)) return at;
    }
    return std::nullopt;
  }

  // The only value of `var` for which the value is not zero.
  std::optional<Expr> not_zero_at(ValueId id, Expr var) const {
    const Stmt* stmt = loop::definition(body_, id);
    if (!stmt) return std::nullopt;
    if (const auto* load = std::get_if<loop::Load>(&stmt->node))
      return is_zero(load->fill) ? pinned(load->access.mask, var, facts_) : std::nullopt;
    const auto* let = std::get_if<loop::Let>(&stmt->node);
    if (!let) return std::nullopt;
    if (let->op == ScalarOp::kCast || let->op == ScalarOp::kNeg) return not_zero_at(let->args[0], var);
    if (let->op != ScalarOp::kSelect || !is_zero_constant(let->args[2])) return std::nullopt;
    const Stmt* condition = loop::definition(body_, let->args[0]);
    const auto* index = condition ? std::get_if<loop::IndexValue>(&condition->node) : nullptr;
    return index ? pinned(index->expr, var, facts_) : std::nullopt;
  }

  bool is_zero_constant(ValueId id) const {
    const Stmt* stmt = loop::definition(body_, id);
    if (!stmt) stmt = loop::definition(nest_.body, id);
    const auto* constant = stmt ? std::get_if<loop::Constant>(&stmt->node) : nullptr;
    return constant && is_zero(constant->value);
  }

  const Nest& nest_;
  const std::vector<Dim>& dims_;
  const Block& body_;
  const sym::Facts& facts_;
};

// Drops a dim of the loop that can be restricted to one index. Returns whether there is one.
bool narrow(const Nest& nest, std::vector<Dim>& dims, Block& body, const sym::Facts& facts) {
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto index = Narrowing(nest, dims, body, facts).index_of(dims[d]);
    if (!index) continue;
    loop::substitute(body, {{dims[d].var, *index}});
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
    return true;
  }
  return false;
}

bool narrow_loops(const Program& program, Nest& nest) {
  bool changed = false;
  Block out;
  for (Stmt& stmt : nest.body) {
    auto* loop = std::get_if<loop::For>(&stmt.node);
    sym::Facts facts = loop::facts_of(program, nest);
    if (loop)
      for (const Dim& dim : loop->dims) facts.set_index(dim.var, dim.extent);
    if (loop && narrow(nest, loop->dims, loop->body, facts)) {
      changed = true;
      if (loop->dims.empty()) {
        std::move(loop->body.begin(), loop->body.end(), std::back_inserter(out));
        continue;
      }
    }
    out.push_back(std::move(stmt));
  }
  nest.body = std::move(out);
  return changed;
}

}  // namespace

void narrow_updates(Program& program) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    Nest& nest = program[launch->nest];
    const sym::Facts facts = loop::facts_of(program, nest);
    const bool dims = narrow(nest, nest.dims, nest.body, facts);
    if (narrow_loops(program, nest) || dims) loop::clean(program, nest);
  });
}

}  // namespace stridec::schedule
