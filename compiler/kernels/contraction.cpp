#include "compiler/kernels/contraction.h"

#include <map>

#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Stmt;
using loop::ValueId;

// What computes each value, numbered in order.
using Definitions = std::map<ValueId, std::pair<size_t, const Stmt*>>;

bool may_be_in_factor(const Stmt& stmt) {
  return std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Constant>(stmt.node) ||
         std::holds_alternative<loop::IndexValue>(stmt.node) || std::holds_alternative<loop::Load>(stmt.node);
}

std::optional<Factor> factor_of(ValueId value, const Definitions& definitions, DType dtype) {
  std::map<size_t, const Stmt*> slice;
  std::vector<ValueId> open = {value};
  Factor factor{.value = value};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const auto found = definitions.find(id);
    if (found == definitions.end() || !may_be_in_factor(*found->second.second)) return std::nullopt;
    const auto [order, stmt] = found->second;
    if (!slice.emplace(order, stmt).second) continue;
    loop::for_each_use(*stmt, [&](ValueId used) { open.push_back(used); });
    loop::for_each_expr(*stmt, [&](sym::Expr e) {
      for (sym::Expr var : sym::free_vars(e)) {
        if (sym::is_index(var)) factor.vars.insert(var);
      }
    });
  }
  for (const auto& [order, stmt] : slice) factor.slice.push_back(stmt);
  if (slice.size() == 1) {
    const auto* load = std::get_if<loop::Load>(&factor.slice[0]->node);
    if (load && load->fill.dtype == dtype) factor.load = load;
  }
  return factor;
}

bool is_pointwise(const Stmt& stmt) {
  return may_be_in_factor(stmt) || std::holds_alternative<loop::Store>(stmt.node);
}

}  // namespace

std::optional<Contraction> match_contraction(const loop::Nest& nest) {
  Contraction c;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const auto* reduce = std::get_if<loop::Reduce>(&nest.body[i].node);
    if (reduce) {
      if (c.reduce) return std::nullopt;
      c.reduce = reduce;
      c.at = i;
    } else if (!is_pointwise(nest.body[i])) {
      return std::nullopt;
    }
  }
  if (!c.reduce || c.reduce->combine != loop::Combine::kSum || c.reduce->dims.empty()) return std::nullopt;
  // Written elements may be read again in the same point: the factors would then depend on the order.
  for (size_t i = 0; i < c.at; ++i) {
    if (std::holds_alternative<loop::Store>(nest.body[i].node)) return std::nullopt;
  }
  for (const Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (store && store->update) return std::nullopt;
  }
  c.dtype = nest.values[c.reduce->results[0].value].dtype;
  if (c.dtype != DType::kF32 && c.dtype != DType::kF64) return std::nullopt;

  Definitions definitions;
  size_t order = 0;
  auto define = [&](const Stmt& stmt) {
    loop::for_each_result(stmt, [&](ValueId id) { definitions[id] = {order, &stmt}; });
    ++order;
  };
  for (size_t i = 0; i < c.at; ++i) define(nest.body[i]);
  for (const Stmt& stmt : c.reduce->body) define(stmt);

  const auto product = definitions.find(c.reduce->yields[0]);
  if (product == definitions.end()) return std::nullopt;
  const auto* mul = std::get_if<loop::Let>(&product->second.second->node);
  if (!mul || mul->op != loop::ScalarOp::kMul) return std::nullopt;
  for (int side = 0; side < 2; ++side) {
    auto factor = factor_of(mul->args[static_cast<size_t>(side)], definitions, c.dtype);
    if (!factor) return std::nullopt;
    c.factors[side] = *std::move(factor);
  }
  // A dim that neither factor sees multiplies the sum by its extent; no template wants that.
  for (const loop::Dim& dim : c.reduce->dims) {
    const bool seen = c.factors[0].vars.contains(dim.var) || c.factors[1].vars.contains(dim.var);
    if (!seen && !dim.extent.is_const(1)) return std::nullopt;
    if (sym::has_index(dim.extent)) return std::nullopt;
  }
  for (const loop::Dim& dim : nest.dims) {
    if (sym::has_index(dim.extent)) return std::nullopt;
  }
  return c;
}

sym::Expr offset_of(const loop::Program& program, const loop::Access& access, const sym::Facts& facts) {
  const loop::Buffer& buffer = program[access.buffer];
  sym::Expr offset = 0;
  for (size_t d = 0; d < access.index.size(); ++d) offset += access.index[d] * buffer.strides[d];
  return sym::simplify(offset, facts);
}

std::optional<LinearForm> linear_form(sym::Expr e, const std::vector<sym::Expr>& vars) {
  LinearForm form{.rest = e};
  for (sym::Expr var : vars) {
    const auto linear = sym::linear_in(form.rest, var);
    if (!linear) return std::nullopt;
    form.coefficients.push_back(linear->coefficient);
    form.rest = linear->rest;
  }
  for (sym::Expr coefficient : form.coefficients) {
    for (sym::Expr var : vars) {
      if (sym::depends_on(coefficient, var)) return std::nullopt;
    }
  }
  return form;
}

std::optional<sym::Expr> merged_step(sym::Expr e, const std::vector<loop::Dim>& dims,
                                     const sym::Facts& facts) {
  std::vector<sym::Expr> vars;
  for (const loop::Dim& dim : dims) vars.push_back(dim.var);
  const auto form = linear_form(e, vars);
  if (!form) return std::nullopt;
  if (dims.empty()) return sym::Expr(0);
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    const sym::Expr outer = form->coefficients[d], inner = form->coefficients[d + 1] * dims[d + 1].extent;
    if (outer == inner || dims[d].extent.is_const(1)) continue;
    if (!facts.holds(sym::eq(outer, inner))) return std::nullopt;
  }
  return form->coefficients.back();
}

sym::Facts facts_in(const loop::Program& program, const loop::Nest& nest, const Contraction& contraction) {
  sym::Facts facts = program.facts;
  for (const loop::Dim& dim : nest.dims) facts.set_index(dim.var, dim.extent);
  for (const loop::Dim& dim : contraction.reduce->dims) facts.set_index(dim.var, dim.extent);
  return facts;
}

}  // namespace stridec::kernels
