#include "compiler/schedule/directives/schedule.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

[[noreturn]] void bad(const loop::Directive& directive, const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-schedule", cat("directive '", directive.name, "' ", why));
}

int64_t number(const loop::Directive& directive, size_t at) {
  int64_t value = 0;
  if (at < directive.args.size()) {
    const std::string& text = directive.args[at];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= 1) return value;
  }
  bad(directive, cat("needs a positive number as argument ", at + 1));
}

int small_number(const loop::Directive& directive, size_t at) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t value = number(directive, at);
  if (value > kMost) bad(directive, cat("needs a number of at most ", kMost, " as argument ", at + 1));
  return static_cast<int>(value);
}

Expr dim(const loop::Directive& directive, size_t at) {
  if (at >= directive.args.size() || directive.args[at].empty() || directive.args[at][0] != '%')
    bad(directive, cat("needs a dim as argument ", at + 1));
  return sym::var(directive.args[at]);
}

std::vector<Expr> dims(const loop::Directive& directive) {
  std::vector<Expr> out;
  for (size_t i = 0; i < directive.args.size(); ++i) out.push_back(dim(directive, i));
  return out;
}

void substitute(Expr& e, Expr var, Expr by, const sym::Facts& facts) {
  if (sym::depends_on(e, var)) e = sym::simplify(sym::substitute(e, var, by), facts);
}

void substitute_everywhere(loop::Block& block, Expr var, Expr by, const sym::Facts& facts) {
  loop::for_each_stmt(block, [&](loop::Stmt& stmt) {
    loop::for_each_expr(stmt, [&](Expr& e) { substitute(e, var, by, facts); });
  });
}

void substitute_everywhere(loop::Nest& nest, Expr var, Expr by, const sym::Facts& facts) {
  for (loop::Dim& d : nest.dims) substitute(d.extent, var, by, facts);
  substitute_everywhere(nest.body, var, by, facts);
}

sym::Facts facts_of_dims(const loop::Program& program, const loop::Nest& nest) {
  sym::Facts facts = program.facts;
  for (const loop::Dim& d : nest.dims) facts.set_index(d.var, d.extent);
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    for (const loop::Dim& d : loop::dims_of(stmt)) facts.set_index(d.var, d.extent);
  });
  return facts;
}

size_t position(const loop::Nest& nest, Expr var) {
  for (size_t d = 0; d < nest.dims.size(); ++d)
    if (nest.dims[d].var == var) return d;
  fail(ErrorKind::kMalformed, "bad-schedule", cat("nest '", nest.name, "' has no parallel dim ", var.name()));
}

// Whether no extent of the dims depends on a or b.
bool ranges_apart(const std::vector<loop::Dim>& dims, Expr a, Expr b) {
  return std::ranges::none_of(dims, [&](const loop::Dim& dim) {
    return sym::depends_on(dim.extent, a) || sym::depends_on(dim.extent, b);
  });
}

// Whether each index by itself is a sum of a multiple of a, a multiple of b and terms without either.
bool linear_indices(const loop::Access& access, Expr a, Expr b) {
  return std::ranges::all_of(access.index, [&](Expr index) {
    const std::optional<sym::Linear> la = sym::linear_in(index, a), lb = sym::linear_in(index, b);
    return la && lb && !sym::depends_on(la->coefficient, b);
  });
}

// The dim of the buffer with stride 1, along which an address can be used as the index; nothing if there is
// none.
std::optional<size_t> unit_dim(const loop::Buffer& buffer) {
  for (size_t d = buffer.strides.size(); d-- > 0;)
    if (buffer.strides[d].is_const(1)) return d;
  return std::nullopt;
}

// Whether the address stride of every access of the block along a is `extent` times its stride along b, and
// nothing else uses either dim. `reason`: what prevents it.
bool in_step(const loop::Program& program, const loop::Block& block, const sym::Facts& facts, Expr a, Expr b,
             Expr extent, std::string* reason = nullptr) {
  bool ok = true;
  loop::for_each_stmt(block, [&](const loop::Stmt& stmt) {
    if (!ok) return;
    if (const loop::Access* access = loop::access_of(stmt)) {
      if (reason) *reason = cat("'", program[access->buffer].name, "' is not walked through in step by both");
      ok = !sym::depends_on(access->mask, a) && !sym::depends_on(access->mask, b);
      const Expr offset = sym::simplify(loop::offset_of(program, *access), facts);
      const bool in_a = sym::depends_on(offset, a), in_b = sym::depends_on(offset, b);
      if (!ok || (!in_a && !in_b)) return;
      const std::optional<sym::Linear> la = sym::linear_in(offset, a), lb = sym::linear_in(offset, b);
      ok = la && lb && !sym::has_index(lb->coefficient) &&
           facts.holds(sym::eq(la->coefficient, extent * lb->coefficient)) &&
           (linear_indices(*access, a, b) || unit_dim(program[access->buffer]));
      return;
    }
    if (reason) *reason = "a value or a range inside depends on one of them";
    loop::for_each_expr(stmt, [&](Expr e) { ok = ok && !sym::depends_on(e, a) && !sym::depends_on(e, b); });
  });
  return ok;
}

// Merges dims a and b of a block that satisfy in_step(): b takes the range of both, and a becomes 0. An index
// with a quotient or remainder of b holds only for b's old range, but the address it simplifies to holds for
// both, so such an access gets the address as its index.
void put_in_one(const loop::Program& program, loop::Block& block, const sym::Facts& facts, Expr a, Expr b) {
  loop::for_each_stmt(block, [&](loop::Stmt& stmt) {
    if (loop::Access* access = loop::access_of(stmt); access && !linear_indices(*access, a, b)) {
      const Expr offset = sym::simplify(loop::offset_of(program, *access), facts);
      std::ranges::fill(access->index, Expr(0));
      access->index[*unit_dim(program[access->buffer])] = offset;
    }
  });
  substitute_everywhere(block, a, 0, program.facts);
}

// The largest number of arguments of a directive; a list of dims has no limit.
size_t most_arguments(const std::string& name) {
  for (const char* of_dims : {"reorder", "merge", "tasks", "order"})
    if (name == of_dims) return SIZE_MAX;
  for (const char* of_one : {"chunk", "grain", "team", "columns", "below", "single"})
    if (name == of_one) return 1;
  return 2;
}

}  // namespace

LoopPlan parse_plan(const loop::Schedule& schedule) {
  LoopPlan plan;
  for (const loop::Directive& d : schedule.directives) {
    if (d.name == "reorder")
      plan.reorder = dims(d);
    else if (d.name == "merge")
      plan.reshapes.push_back({dims(d), {}});
    else if (d.name == "split")
      plan.reshapes.push_back({{}, LoopPlan::Split{dim(d, 0), number(d, 1)}});
    else if (d.name == "tasks")
      plan.tasks = dims(d);
    else if (d.name == "chunk")
      plan.chunk = number(d, 0);
    else if (d.name == "grain")
      plan.grain = number(d, 0);
    else if (d.name == "team")
      plan.team = small_number(d, 0);
    else if (d.name == "columns")
      plan.columns = dim(d, 0);
    else if (d.name == "tile" && d.args.size() > 1 && d.args[1].starts_with('%'))
      plan.tile.emplace(dim(d, 0), dim(d, 1));
    else if (d.name == "tile")
      plan.blocks.push_back({dim(d, 0), number(d, 1)});
    else if (d.name == "points")
      plan.points.push_back({dim(d, 0), number(d, 1)});
    else if (d.name == "below")
      plan.few = number(d, 0);
    else if (d.name == "fewer")
      plan.few_points.push_back({dim(d, 0), number(d, 1)});
    else if (d.name == "order")
      plan.order = dims(d);
    else if (d.name == "vectorize")
      plan.width[dim(d, 0)] = small_number(d, 1);
    else if (d.name == "single")
      plan.single = dim(d, 0);
    else if (d.name == "accumulators")
      plan.accumulators[dim(d, 0)] = small_number(d, 1);
    else if (d.name == "transpose")
      plan.transpose.emplace(dim(d, 0), small_number(d, 1));
    else
      bad(d, "is not known");
    if (const size_t most = most_arguments(d.name); d.args.size() > most)
      bad(d, cat("takes ", most, most == 1 ? " argument" : " arguments", " and no more"));
  }
  return plan;
}

std::vector<loop::Directive> directives(const LoopPlan& plan) {
  std::vector<loop::Directive> out;
  auto names = [](const LoopPlan::Dims& list) {
    std::vector<std::string> args;
    for (const Expr& e : list) args.push_back(e.name());
    return args;
  };
  if (!plan.reorder.empty()) out.push_back({"reorder", names(plan.reorder)});
  for (const LoopPlan::Reshape& r : plan.reshapes)
    out.push_back(r.split ? loop::Directive{"split", {r.split->dim.name(), cat(r.split->factor)}}
                          : loop::Directive{"merge", names(r.merge)});
  if (!plan.tasks.empty()) out.push_back({"tasks", names(plan.tasks)});
  if (plan.chunk != 1) out.push_back({"chunk", {cat(plan.chunk)}});
  if (plan.grain != 1) out.push_back({"grain", {cat(plan.grain)}});
  if (plan.team != 1) out.push_back({"team", {cat(plan.team)}});
  if (plan.columns) out.push_back({"columns", {plan.columns->name()}});
  if (plan.tile) out.push_back({"tile", {plan.tile->first.name(), plan.tile->second.name()}});
  for (const LoopPlan::Split& b : plan.blocks) out.push_back({"tile", {b.dim.name(), cat(b.factor)}});
  for (const LoopPlan::Split& p : plan.points) out.push_back({"points", {p.dim.name(), cat(p.factor)}});
  if (plan.few) out.push_back({"below", {cat(plan.few)}});
  for (const LoopPlan::Split& p : plan.few_points) out.push_back({"fewer", {p.dim.name(), cat(p.factor)}});
  if (!plan.order.empty()) out.push_back({"order", names(plan.order)});
  for (const auto& [var, width] : plan.width) out.push_back({"vectorize", {var.name(), cat(width)}});
  if (plan.single) out.push_back({"single", {plan.single->name()}});
  for (const auto& [var, count] : plan.accumulators)
    out.push_back({"accumulators", {var.name(), cat(count)}});
  if (plan.transpose)
    out.push_back({"transpose", {plan.transpose->first.name(), cat(plan.transpose->second)}});
  return out;
}

bool can_merge(const loop::Program& program, const loop::Nest& nest, Expr a, Expr b, std::string* reason) {
  const Expr extent = nest.dims[position(nest, b)].extent;
  if (!ranges_apart(nest.dims, a, b) || sym::has_index(extent) ||
      sym::has_index(nest.dims[position(nest, a)].extent)) {
    if (reason) *reason = "a parallel range depends on another dim";
    return false;
  }
  return in_step(program, nest.body, facts_of_dims(program, nest), a, b, extent, reason);
}

loop::Nest with_merged_loops(const loop::Program& program, loop::Nest nest) {
  const sym::Facts facts = facts_of_dims(program, nest);
  for (loop::Stmt& stmt : nest.body) {
    auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
    auto* loop = std::get_if<loop::For>(&stmt.node);
    if (!reduce && !loop) continue;
    std::vector<loop::Dim>& dims = reduce ? reduce->dims : loop->dims;
    loop::Block& block = reduce ? reduce->body : loop->body;
    for (size_t d = dims.size(); d-- > 1;) {
      const loop::Dim slow = dims[d - 1];
      const Expr fast = dims[d].var;
      if (!ranges_apart(dims, slow.var, fast) || sym::has_index(slow.extent) ||
          sym::has_index(dims[d].extent) || !in_step(program, block, facts, slow.var, fast, dims[d].extent))
        continue;
      dims[d].extent *= slow.extent;
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d) - 1);
      put_in_one(program, block, facts, slow.var, fast);
    }
  }
  return nest;
}

loop::Nest with_merged(const loop::Program& program, loop::Nest nest,
                       const std::vector<LoopPlan::Dims>& merges) {
  for (const LoopPlan::Dims& merge : merges)
    for (size_t i = merge.size() - 1; i > 0; --i) {
      const Expr a = merge[i - 1], b = merge.back();
      STRIDEC_CHECK(can_merge(program, nest, a, b), cat("cannot merge ", a.name(), " and ", b.name()));
      put_in_one(program, nest.body, facts_of_dims(program, nest), a, b);
      nest.dims[position(nest, b)].extent *= nest.dims[position(nest, a)].extent;
      nest.dims.erase(nest.dims.begin() + static_cast<std::ptrdiff_t>(position(nest, a)));
    }
  return nest;
}

loop::Nest reshaped(const loop::Program& program, const loop::Nest& nest, const LoopPlan& plan) {
  loop::Nest out = nest;
  for (size_t d = out.dims.size(); d-- > 0;) {
    if (!out.dims[d].extent.is_const(1)) continue;
    substitute_everywhere(out, out.dims[d].var, 0, facts_of_dims(program, out));
    out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(d));
  }
  if (!plan.reorder.empty()) {
    std::vector<loop::Dim> dims;
    for (const Expr& var : plan.reorder) dims.push_back(out.dims[position(out, var)]);
    STRIDEC_CHECK(dims.size() == out.dims.size(), "reorder names every dim once");
    out.dims = std::move(dims);
  }
  for (const LoopPlan::Reshape& reshape : plan.reshapes) {
    if (reshape.split) {
      const size_t d = position(out, reshape.split->dim);
      const loop::Dim old = out.dims[d];
      const loop::Dim outer{sym::var(old.var.name() + ".o"),
                            sym::floordiv(old.extent, reshape.split->factor)};
      const loop::Dim inner{sym::var(old.var.name() + ".i"), reshape.split->factor};
      out.dims[d] = outer;
      out.dims.insert(out.dims.begin() + static_cast<std::ptrdiff_t>(d) + 1, inner);
      substitute_everywhere(out, old.var, outer.var * inner.extent + inner.var, facts_of_dims(program, out));
      continue;
    }
    out = with_merged(program, std::move(out), {reshape.merge});
  }
  return out;
}

}  // namespace stridec::schedule
