#include "compiler/loop/rewrite.h"

#include <algorithm>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

void substitute(Access& access, const sym::Substitution& replacements) {
  for (Expr& e : access.index) e = sym::substitute(e, replacements);
  access.mask = sym::substitute(access.mask, replacements);
}

void substitute(Block& block, const sym::Substitution& replacements) {
  if (replacements.empty()) return;
  for_each_stmt(block,
                [&](Stmt& s) { for_each_expr(s, [&](Expr& e) { e = sym::substitute(e, replacements); }); });
}

ValueId add_value(Nest& nest, DType dtype) { return add_value(nest, ValueInfo{dtype}); }

ValueId add_value(Nest& nest, const ValueInfo& like) {
  nest.values.push_back(like);
  return ValueId(static_cast<int64_t>(nest.values.size()) - 1);
}

ValueId add_value(Nest& nest, DType dtype, ValueId of) {
  return add_value(nest, ValueInfo{dtype, {nest.values[of.value].origin.node}});
}

ValueId Writer::let(ScalarOp op, DType dtype, std::vector<ValueId> args) {
  const ValueId result = add_value(nest, ValueInfo{dtype, {node}});
  block.push_back({Let{result, op, std::move(args)}});
  return result;
}

ValueId Writer::cast(ValueId value, DType to) {
  return nest.values[value.value].dtype == to ? value : let(ScalarOp::kCast, to, {value});
}

ValueId Writer::constant(const Scalar& scalar) {
  const ValueId result = add_value(nest, ValueInfo{scalar.dtype, {node}});
  block.push_back({Constant{result, scalar}});
  return result;
}

ValueId Writer::index(Expr e, DType dtype) {
  const ValueId result = add_value(nest, ValueInfo{dtype, {node}});
  block.push_back({IndexValue{result, e}});
  return result;
}

ValueId Writer::load(DType dtype, Access access) {
  const ValueId result = add_value(nest, ValueInfo{dtype, {node}});
  block.push_back({Load{result, std::move(access), int_scalar(dtype, 0)}});
  return result;
}

void Writer::store(Access access, ValueId value) {
  block.push_back({Store{.access = std::move(access), .value = value}});
}

Nest copy_nest(std::string name, std::vector<Dim> dims, Access from, Scalar fill, Access to) {
  Nest copy{.name = std::move(name), .dims = std::move(dims)};
  const ValueId value = add_value(copy, fill.dtype);
  copy.body.push_back({Load{value, std::move(from), fill}});
  copy.body.push_back({Store{.access = std::move(to), .value = value}});
  return copy;
}

void redirect(Nest& nest, ValueId value, const Access& access) {
  for_each_stmt(nest.body, [&](Stmt& stmt) {
    if (auto* load = std::get_if<Load>(&stmt.node); load && load->result == value) load->access = access;
  });
}

void replace_uses(Block& block, ValueId from, ValueId to) {
  for_each_stmt(block, [&](Stmt& s) {
    for_each_use(s, [&](ValueId& v) {
      if (v == from) v = to;
    });
  });
}

// ---- cloning ---------------------------------------------------------------------------------------------

Cloner::Cloner(Nest& into) : into_(into) {
  for (const Dim& d : into.dims) taken_.insert(d.var);
  for_each_stmt(std::as_const(into.body),
                [&](const Stmt& s) { for_each_index(s, [&](Expr v) { taken_.insert(v); }); });
}

ValueId Cloner::value(ValueId from) const {
  auto it = values_.find(from.value);
  STRIDEC_CHECK(it != values_.end(), cat("value %", from.value, " has no copy in nest ", into_.name));
  return it->second;
}

ValueId Cloner::fresh_value(const ValueInfo& like) { return add_value(into_, like); }

Expr Cloner::fresh_index(Expr like) {
  Expr out = like;
  if (taken_.count(out)) {
    std::string stem = like.name();
    while (stem.size() > 1 && stem.back() >= '0' && stem.back() <= '9') stem.pop_back();
    if (stem == "%") stem = "%i";
    for (size_t n = taken_.size(); taken_.count(out); ++n) out = sym::var(cat(stem, n));
  }
  taken_.insert(out);
  return out;
}

Access Cloner::access(const Access& from) const {
  Access out = from;
  substitute(out, indices_);
  return out;
}

Stmt Cloner::clone(const Nest& from, const Stmt& stmt) {
  Stmt out = stmt;
  auto define = [&](ValueId& v) {
    ValueId copy = fresh_value(from.values[v.value]);
    values_[v.value] = copy;
    v = copy;
  };
  // A bind's extent is outside the scope of its variable; a loop's extents may use its outer dims.
  if (!std::holds_alternative<Bind>(out.node)) {
    for_each_index(out, [&](Expr& var) { var = indices_[var] = fresh_index(var); });
    for_each_expr(out, [&](Expr& e) { e = expr(e); });
  } else {
    for_each_expr(out, [&](Expr& e) { e = expr(e); });
    for_each_index(out, [&](Expr& var) { var = indices_[var] = fresh_index(var); });
  }
  if (auto* scan = std::get_if<Scan>(&out.node))
    for (ValueId& v : scan->carried) define(v);
  if (Block* body = body_of(out)) *body = clone(from, *body_of(stmt));
  for_each_use(out, [&](ValueId& v) { v = value(v); });
  for_each_result(out, define);
  return out;
}

Block Cloner::clone(const Nest& from, const Block& block) {
  Block out;
  out.reserve(block.size());
  for (const Stmt& s : block) out.push_back(clone(from, s));
  return out;
}

// ---- names and dims --------------------------------------------------------------------------------------

void renumber(Nest& nest) {
  sym::Substitution names;
  auto rename = [&](Expr& var) {
    Expr fresh = sym::var(cat("%i", names.size()));
    names.emplace(var, fresh);
    var = fresh;
  };
  std::vector<ValueInfo> values;
  std::unordered_map<int32_t, ValueId> ids;
  auto define = [&](ValueId v) {
    ids[v.value] = ValueId(static_cast<int64_t>(values.size()));
    values.push_back(nest.values[v.value]);
  };
  for (Dim& d : nest.dims) rename(d.var);
  for_each_stmt(nest.body, [&](Stmt& s) {
    for_each_index(s, rename);
    if (auto* scan = std::get_if<Scan>(&s.node))
      for (ValueId v : scan->carried) define(v);
    for_each_result(std::as_const(s), define);
  });
  for (Dim& d : nest.dims) d.extent = sym::substitute(d.extent, names);
  substitute(nest.body, names);
  for_each_stmt(nest.body, [&](Stmt& s) {
    auto map = [&](ValueId& v) { v = ids.at(v.value); };
    for_each_use(s, map);
    for_each_result(s, map);
    if (auto* scan = std::get_if<Scan>(&s.node))
      for (ValueId& v : scan->carried) map(v);
  });
  nest.values = std::move(values);
  for (Directive& d : nest.schedule.directives)
    for (std::string& arg : d.args)
      for (const auto& [from, to] : names)
        if (arg == from.name()) {
          arg = to.name();
          break;
        }
}

void replace_dim(Nest& nest, Expr dim, Expr replacement) {
  auto at = std::find_if(nest.dims.begin(), nest.dims.end(), [&](const Dim& d) { return d.var == dim; });
  STRIDEC_CHECK(at != nest.dims.end(), nest.name);
  nest.dims.erase(at);
  for (Dim& d : nest.dims) d.extent = sym::substitute(d.extent, dim, replacement);
  substitute(nest.body, {{dim, replacement}});
}

// ---- facts -----------------------------------------------------------------------------------------------

sym::Facts facts_of(const Program& program, const Nest& nest) {
  sym::Facts facts = program.facts;
  for (const Dim& d : nest.dims) facts.set_index(d.var, d.extent);
  return facts;
}

sym::Facts facts_of(const Program& program, const Nest& nest, const Reduce& reduce) {
  sym::Facts facts = facts_of(program, nest);
  for (const Dim& d : reduce.dims) facts.set_index(d.var, d.extent);
  return facts;
}

void add_facts(sym::Facts& facts, const Stmt& stmt) {
  for (const Dim& d : dims_of(stmt)) facts.set_index(d.var, d.extent);
  if (auto* bind = std::get_if<Bind>(&stmt.node)) add_facts(facts, *bind);
}

void add_facts(sym::Facts& facts, const Bind& bind) {
  using enum Bind::OutOfRange;
  if (bind.mode == kError || (bind.mode == kClamp && facts.bounds(bind.extent).lo >= 1))
    facts.set_index(bind.var, bind.extent);
  else
    facts.set_masked_index(bind.var, bind.extent);
}

// ---- inverting a store -----------------------------------------------------------------------------------

namespace {

// e == sum of coefficient * dim, plus rest.
struct DimSum {
  std::vector<std::pair<const Dim*, Expr>> terms;
  Expr rest;
};

std::optional<DimSum> sum_of_dims(Expr e, const std::vector<Dim>& dims) {
  DimSum out{.terms = {}, .rest = e};
  for (const Dim& d : dims) {
    if (!sym::depends_on(out.rest, d.var)) continue;
    std::optional<sym::Linear> l = sym::linear_in(out.rest, d.var);
    if (!l || sym::has_index(l->coefficient)) return std::nullopt;
    out.terms.emplace_back(&d, l->coefficient);
    out.rest = l->rest;
  }
  return out;
}

// Mixed-radix digits of `value`: the outermost term is the one whose coefficient exceeds the sum of all
// others.
bool solve(std::vector<std::pair<const Dim*, Expr>> terms, Expr value, const sym::Facts& facts,
           sym::Substitution& out) {
  while (!terms.empty()) {
    size_t outer = 0;
    for (; outer < terms.size(); ++outer) {
      Expr others = 0;
      bool positive = facts.holds(sym::lt(0, terms[outer].second));
      for (size_t i = 0; i < terms.size(); ++i) {
        if (i == outer) continue;
        others += terms[i].second * (terms[i].first->extent - 1);
        positive = positive && facts.holds(sym::le(0, terms[i].second));
      }
      if (positive && facts.holds(sym::lt(others, terms[outer].second))) break;
      if (terms.size() == 1 && terms[0].second.is_const(-1)) break;
    }
    if (outer == terms.size()) return false;
    auto [dim, scale] = terms[outer];
    if (scale.is_const(-1)) {
      out[dim->var] = -value;
      return true;
    }
    out[dim->var] = sym::simplify(sym::floordiv(value, scale), facts);
    value = sym::simplify(sym::mod(value, scale), facts);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(outer));
  }
  return true;
}

}  // namespace

std::optional<sym::Substitution> invert(const Nest& nest, const Access& store, const std::vector<Expr>& at,
                                        const sym::Facts& facts) {
  STRIDEC_CHECK(at.size() == store.index.size(), nest.name);
  // If the store reaches an element, its dims are not empty.
  sym::Facts inside = facts;
  for (const Dim& d : nest.dims)
    if (!sym::has_index(d.extent)) inside.assume(sym::le(1, d.extent));
  sym::Substitution out;
  // Simplest indices first: a dim that is alone in an index can be read off it.
  for (size_t most : {size_t{1}, nest.dims.size()})
    for (size_t p = 0; p < at.size(); ++p) {
      std::optional<DimSum> sum = sum_of_dims(store.index[p], nest.dims);
      if (!sum) continue;
      Expr value = at[p] - sum->rest;
      std::vector<std::pair<const Dim*, Expr>> open;
      for (auto [dim, scale] : sum->terms) {
        if (auto known = out.find(dim->var); known != out.end())
          value -= scale * known->second;
        else
          open.emplace_back(dim, scale);
      }
      if (open.empty() || open.size() > most) continue;
      sym::Substitution found;
      if (solve(open, value, inside, found)) out.insert(found.begin(), found.end());
    }
  for (const Dim& d : nest.dims) {
    if (out.count(d.var)) continue;
    if (!d.extent.is_const(1)) return std::nullopt;
    out[d.var] = 0;
  }
  return out;
}

}  // namespace stridec::loop
