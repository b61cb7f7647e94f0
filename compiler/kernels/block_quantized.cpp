#include "compiler/kernels/block_quantized.h"

#include <algorithm>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Dim;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

std::vector<Expr> exprs_of(const Stmt& stmt) {
  std::vector<Expr> exprs;
  loop::for_each_expr(stmt, [&](Expr e) { exprs.push_back(e); });
  return exprs;
}

bool any_depends(const std::vector<const Stmt*>& statements, const std::vector<Dim>& dims) {
  return std::any_of(statements.begin(), statements.end(), [&](const Stmt* stmt) {
    const std::vector<Expr> exprs = exprs_of(*stmt);
    return std::any_of(exprs.begin(), exprs.end(), [&](Expr e) { return depends_on_any(e, dims); });
  });
}

ValueId result_of(const Stmt& stmt) {
  ValueId result;
  loop::for_each_result(stmt, [&](ValueId id) { result = id; });
  return result;
}

// Width that holds the integers of a range, among those that divide words; nothing if they need more bits.
std::optional<int> bits_of(Range range) {
  for (const int bits : {2, 4, 8})
    if (range.high - range.low < int64_t{1} << bits) return bits;
  return std::nullopt;
}

// The integer value of fewest bits that differs from one k to the next; the last of several equals.
std::optional<QuantizedPart> numbers_of(const loop::Program& program, const loop::Nest& nest,
                                        const Factor& factor, const std::vector<Dim>& columns,
                                        const std::vector<Dim>& k) {
  const Ranges ranges = integer_ranges(nest, factor.slice, &program);
  std::optional<QuantizedPart> best;
  for (const Stmt* stmt : factor.slice) {
    const ValueId value = result_of(*stmt);
    const auto range = ranges.find(value);
    if (range == ranges.end() || is_float(nest.values[value.value].dtype)) continue;
    const auto bits = bits_of(range->second);
    if (!bits || (best && best->bits < *bits)) continue;
    const auto slice = slice_of(factor.slice, value);
    std::vector<Expr> exprs;
    for (const Stmt* part : slice) loop::for_each_expr(*part, [&](Expr e) { exprs.push_back(e); });
    if (!any_depends(slice, columns) || step_along(exprs, k) != 1) continue;
    best = QuantizedPart{.value = value, .step = 1, .bits = *bits, .low = range->second.low};
  }
  return best;
}

}  // namespace

std::vector<const Stmt*> slice_of(const std::vector<const Stmt*>& slice, ValueId value) {
  std::set<ValueId> wanted = {value};
  std::vector<const Stmt*> kept;
  for (size_t i = slice.size(); i-- > 0;) {
    if (!wanted.contains(result_of(*slice[i]))) continue;
    loop::for_each_use(*slice[i], [&](ValueId id) { wanted.insert(id); });
    kept.push_back(slice[i]);
  }
  return {kept.rbegin(), kept.rend()};
}

void unflatten(Expr number, const std::vector<Dim>& dims, sym::Substitution& to) {
  if (dims.empty()) return;
  for (size_t d = dims.size(); d-- > 1;) {
    to[dims[d].var] = sym::mod(number, dims[d].extent);
    number = sym::floordiv(number, dims[d].extent);
  }
  to[dims[0].var] = number;
}

Expr flattened(const std::vector<Dim>& dims) {
  Expr number = 0;
  for (const Dim& dim : dims) number = number * dim.extent + dim.var;
  return number;
}

int64_t step_along(const std::vector<Expr>& exprs, const std::vector<Dim>& k) {
  const Expr block = sym::var("%block"), within = sym::var("%within");
  std::set<int64_t, std::greater<>> candidates;
  int64_t depth = 1;
  for (size_t d = k.size(); d-- > 0;) {
    const auto extent = sym::as_const(k[d].extent);
    if (!extent) return 1;
    depth *= *extent;
    if (d > 0) candidates.insert(depth);
  }
  for (Expr e : exprs) {
    sym::for_each_node(e, [&](Expr node) {
      if (node.op() != sym::Op::kFloorDiv && node.op() != sym::Op::kMod) return;
      if (const auto divisor = sym::as_const(node.arg(1))) candidates.insert(*divisor);
    });
  }
  candidates.insert(depth);
  for (const int64_t step : candidates) {
    if (step < 1 || step > depth) continue;
    sym::Facts facts;
    facts.set_index(block, (depth + step - 1) / step);
    facts.set_index(within, step);
    sym::Substitution to;
    unflatten(block * step + within, k, to);
    const bool same = std::none_of(exprs.begin(), exprs.end(), [&](Expr e) {
      return depends_on_any(e, k) && sym::depends_on(sym::simplify(sym::substitute(e, to), facts), within);
    });
    if (same) return step == depth ? 0 : step;
  }
  return 1;
}

std::optional<std::vector<QuantizedPart>> quantized_parts(const loop::Program& program,
                                                          const loop::Nest& nest, const Factor& factor,
                                                          const std::vector<Dim>& columns,
                                                          const std::vector<Dim>& k) {
  if (columns.empty() || k.empty()) return std::nullopt;
  for (const auto* dims : {&nest.dims, &k}) {
    for (const Dim& dim : *dims) {
      const auto extent = sym::as_const(dim.extent);
      if (factor.vars.contains(dim.var) && (!extent || *extent < 1)) return std::nullopt;
    }
  }
  std::vector<QuantizedPart> parts;
  std::set<ValueId> wanted = {factor.value};
  const auto numbers = numbers_of(program, nest, factor, columns, k);
  for (size_t i = factor.slice.size(); i-- > 0;) {
    const Stmt& stmt = *factor.slice[i];
    const ValueId value = result_of(stmt);
    if (!wanted.contains(value)) continue;
    const std::vector<Expr> exprs = exprs_of(stmt);
    for (Expr e : exprs)
      for (Expr var : sym::free_vars(e))
        if (!sym::is_index(var)) return std::nullopt;
    if (numbers && value == numbers->value) {
      parts.push_back(*numbers);
      continue;
    }
    const bool of_columns =
        std::any_of(exprs.begin(), exprs.end(), [&](Expr e) { return depends_on_any(e, columns); });
    if (const auto* load = std::get_if<loop::Load>(&stmt.node)) {
      if (program[load->access.buffer].storage != loop::Storage::kParameter) return std::nullopt;
      if (of_columns) parts.push_back({.value = value, .step = step_along(exprs, k)});
    } else if (of_columns) {
      return std::nullopt;
    }
    loop::for_each_use(stmt, [&](ValueId id) { wanted.insert(id); });
  }
  if (parts.empty()) return std::nullopt;
  return parts;
}

}  // namespace stridec::kernels
