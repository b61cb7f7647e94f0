#include "compiler/kernels/contraction.h"

#include <algorithm>
#include <map>

#include "compiler/kernels/integer_range.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Stmt;

bool is_pointwise(const loop::Nest& nest, const Stmt& stmt) {
  // A lookup that cannot fail.
  if (const auto* bind = std::get_if<loop::Bind>(&stmt.node))
    return loop::holds_any(*bind, nest.values[bind->value.value].dtype);
  return std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Constant>(stmt.node) ||
         std::holds_alternative<loop::IndexValue>(stmt.node) ||
         std::holds_alternative<loop::Load>(stmt.node) || std::holds_alternative<loop::Store>(stmt.node);
}

// Whether the reduction sums the product itself, not a conversion of it.
bool adds_products(const loop::Reduce& reduce) {
  for (const Stmt& stmt : reduce.body) {
    const auto* let = std::get_if<loop::Let>(&stmt.node);
    if (let && let->result == reduce.yields[0]) return let->op == loop::ScalarOp::kMul;
  }
  return false;
}

Factor factor_of(const loop::Operand& operand, DType dtype) {
  Factor factor{.value = operand.value, .slice = operand.slice};
  factor.vars.insert(operand.vars.begin(), operand.vars.end());
  if (operand.slice.size() == 1 && operand.plain && operand.plain->fill.dtype == dtype)
    factor.load = operand.plain;
  return factor;
}

}  // namespace

const loop::Load* plain_load(const Factor& factor) {
  const loop::Load* load = nullptr;
  for (const Stmt* stmt : factor.slice) {
    if (const auto* l = std::get_if<loop::Load>(&stmt->node)) {
      if (load) return nullptr;
      load = l;
    } else {
      const auto* let = std::get_if<loop::Let>(&stmt->node);
      if (!let || let->op != loop::ScalarOp::kCast) return nullptr;
    }
  }
  return load && factor.slice.size() <= 2 && load->access.mask.is_const(1) ? load : nullptr;
}

std::optional<Contraction> match_contraction(const loop::Nest& nest) {
  const auto found = loop::classify_contraction(nest);
  if (!found || found->reduce->dims.empty() || !adds_products(*found->reduce)) return std::nullopt;
  if (found->accumulate != DType::kF32 && found->accumulate != DType::kF64 &&
      found->accumulate != DType::kI32)
    return std::nullopt;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (i == found->at) continue;
    if (!is_pointwise(nest, nest.body[i])) return std::nullopt;
    // Stored elements might be read again in the same point; the factors would then depend on the order.
    const auto* store = std::get_if<loop::Store>(&nest.body[i].node);
    if (store && (i < found->at || store->update)) return std::nullopt;
  }
  Contraction c{.at = found->at, .reduce = found->reduce, .dtype = found->accumulate, .factors = {}};
  c.factors[0] = factor_of(found->a, c.dtype);
  c.factors[1] = factor_of(found->b, c.dtype);
  // A dim that neither factor depends on multiplies the sum by its extent; templates do not support that.
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

std::optional<Factor> as_elements(const loop::Nest& nest, const Factor& factor, DType dtype) {
  if (nest.values[factor.value.value].dtype == dtype) return factor;
  // Skips lossless conversions.
  std::map<loop::ValueId, const Stmt*> made;
  const Ranges ranges = integer_ranges(nest, factor.slice);
  for (const Stmt* stmt : factor.slice)
    loop::for_each_result(*stmt, [&](loop::ValueId id) { made[id] = stmt; });
  loop::ValueId value = factor.value;
  while (true) {
    const auto* cast = std::get_if<loop::Let>(&made.at(value)->node);
    if (!cast || cast->op != loop::ScalarOp::kCast) break;
    const DType to = nest.values[value.value].dtype, from = nest.values[cast->args[0].value].dtype;
    const bool exact = is_float(to) ? from == DType::kBF16 || from == DType::kF16 || from == to
                                    : ranges.contains(cast->args[0]) && ranges.contains(value) &&
                                          ranges.at(cast->args[0]) == ranges.at(value);
    if (!exact) break;
    value = cast->args[0];
    if (from == dtype) break;
  }
  const bool same = nest.values[value.value].dtype == dtype;
  if (!same) {
    const auto range = ranges.find(factor.value);
    if (dtype != DType::kI16 || range == ranges.end() || range->second.low < INT16_MIN ||
        range->second.high > INT16_MAX)
      return std::nullopt;
    value = factor.value;
  }
  Factor out{.value = value, .slice = {}, .load = nullptr, .vars = factor.vars};
  for (const Stmt* stmt : factor.slice) {
    out.slice.push_back(stmt);
    if (stmt == made.at(value)) break;
  }
  const auto* load = std::get_if<loop::Load>(&made.at(value)->node);
  if (same && load) {
    out.slice = {made.at(value)};
    out.load = load;
  }
  return out;
}

size_t side_of_columns(const Contraction& contraction, const std::vector<sym::Expr>& rows,
                       const std::vector<sym::Expr>& columns) {
  const auto alone = [&](const Factor& factor, const Factor& other, const std::vector<sym::Expr>& vars) {
    return std::any_of(vars.begin(), vars.end(),
                       [&](sym::Expr var) { return factor.vars.contains(var) && !other.vars.contains(var); });
  };
  const auto& [first, second] = contraction.factors;
  return alone(first, second, columns) || alone(second, first, rows) ? 0 : 1;
}

sym::Expr offset_of(const loop::Program& program, const loop::Access& access, const sym::Facts& facts) {
  return sym::simplify(loop::offset_of(program, access), facts);
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

std::optional<sym::Expr> stride_of_transposed_rows(const loop::Program& program, const loop::Access& access,
                                                   const std::vector<loop::Dim>& rows,
                                                   const std::vector<loop::Dim>& k, const sym::Facts& facts) {
  if (!access.mask.is_const(1) || rows.empty()) return std::nullopt;
  const sym::Expr offset = offset_of(program, access, facts);
  const auto row = merged_step(offset, rows, facts);
  if (!row || !row->is_const(1)) return std::nullopt;
  return merged_step(loop::at_zero(offset, rows), k, facts);
}

sym::Facts facts_in(const loop::Program& program, const loop::Nest& nest, const Contraction& contraction) {
  sym::Facts facts = program.facts;
  for (const loop::Dim& dim : nest.dims) facts.set_index(dim.var, dim.extent);
  for (const loop::Dim& dim : contraction.reduce->dims) facts.set_index(dim.var, dim.extent);
  return facts;
}

}  // namespace stridec::kernels
