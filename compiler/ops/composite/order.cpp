#include "compiler/ops/composite/order.h"

#include <limits>

#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term is_nan(Term x) {
  return is_float(x.dtype()) ? apply(OpKind::kIsNan, x) : filled(x.builder(), x.shape(), DType::kBool, 0);
}

Term sortable(Term x) { return is_bool(x.dtype()) ? cast(x, DType::kU8) : x; }

// How often n halves until it is 1.
sym::Expr doublings(sym::Expr n) {
  if (!n.is_const()) return n;
  int64_t steps = 0;
  for (int64_t reach = 1; reach < n.value(); reach *= 2) ++steps;
  return steps;
}

// The element of each row at a position, which keeps dim with size 1.
Picked at_rank(const Ordered& sorted, Term position, int64_t dim) {
  return {squeeze(gather_elements(sorted.values, position, dim), {dim}),
          squeeze(gather_elements(sorted.indices, position, dim), {dim})};
}

// How many elements of each row are numbers, i64.
Term numbers_of(Term x, int64_t dim) {
  return reduce_sum(cast(logical_not(is_nan(x)), DType::kI64), {dim}, kKeep);
}

}  // namespace

std::vector<Term> prefix_scan(std::vector<Term> x, int64_t dim, const Combine& combine) {
  Builder& b = x.at(0).builder();
  const sym::Expr n = x[0].dim(dim);
  const Term size = size_as(b, DType::kI64, n), at = index_along(b, {n}, 0, DType::kI64);
  std::vector<ValueId> carried;
  for (Term t : x) carried.push_back(t.id());
  const Term one(b, b.elements({1}, {}, DType::kI64));
  carried.push_back(one.id());
  const LoopResult result = loop(b, doublings(n), less(one, size).id(), carried, [&](const LoopState& state) {
    std::vector<Term> later, earlier;
    const Term shift(b, state.carried.back()), from = at - shift;
    for (size_t i = 0; i + 1 < state.carried.size(); ++i) {
      later.emplace_back(b, state.carried[i]);
      earlier.push_back(gather(later[i], maximum(from, 0), dim));
    }
    const std::vector<Term> joined = combine(earlier, later);
    const Term reached = along_dim(greater_equal(from, 0), dim, x[0].rank());
    LoopStep step{.condition = {}, .carried = {}, .stacked = {}};
    for (size_t i = 0; i < later.size(); ++i)
      step.carried.push_back(select(expand(reached, later[i].shape()), joined[i], later[i]).id());
    const Term next = shift + shift;
    step.carried.push_back(next.id());
    step.condition = less(next, size).id();
    return step;
  });
  for (size_t i = 0; i < x.size(); ++i) x[i] = Term(b, result.carried[i]);
  return x;
}

Picked cumulative_extreme(Term x, int64_t dim, bool largest) {
  const Term keys = sortable(x),
             at = expand(index_along(x.builder(), x.shape(), dim, DType::kI64), x.shape());
  const std::vector<Term> out = prefix_scan({keys, at}, dim, [&](const auto& earlier, const auto& later) {
    const Term beats = largest ? greater_equal(later[0], earlier[0]) : less_equal(later[0], earlier[0]);
    const Term wins = logical_or(is_nan(later[0]), logical_and(logical_not(is_nan(earlier[0])), beats));
    return std::vector<Term>{select(wins, later[0], earlier[0]), select(wins, later[1], earlier[1])};
  });
  return {cast(out[0], x.dtype()), out[1]};
}

Term log_cumulative_sum_exp(Term x, int64_t dim) {
  const std::vector<Term> out = prefix_scan({widen(x)}, dim, [](const auto& earlier, const auto& later) {
    const Term high = maximum(earlier[0], later[0]), low = minimum(earlier[0], later[0]);
    const Term sum = high + apply(OpKind::kLog1p, exp(low - high));
    return std::vector<Term>{select(apply(OpKind::kIsInf, high), high, sum)};
  });
  return cast(out[0], x.dtype());
}

Picked kth_value(Term x, int64_t dim, sym::Expr k) {
  Builder& b = x.builder();
  b.require(sym::logical_and(sym::ge(k, 1), sym::le(k, x.dim(dim))),
            "the element of rank {0} is asked for in a dim of size {1}", {k, x.dim(dim)});
  const Ordered sorted = sort(sortable(x), dim);
  return {cast(squeeze(slice(sorted.values, dim, k - 1, 1), {dim}), x.dtype()),
          squeeze(slice(sorted.indices, dim, k - 1, 1), {dim})};
}

Picked median(Term x, int64_t dim, bool skip_nan) {
  const Term size = size_as(x.builder(), DType::kI64, x.dim(dim)), numbers = numbers_of(x, dim);
  // The sort is stable and has NaN at the end: the first NaN follows the numbers.
  const Term middle = maximum((skip_nan ? numbers : expand(size, numbers.shape())) - 1.0, 0) / 2.0;
  const Term position = skip_nan ? middle : select(less(numbers, size), numbers, middle);
  const Picked out = at_rank(sort(sortable(x), dim), position, dim);
  return {cast(out.values, x.dtype()), out.indices};
}

Picked mode(Term x, int64_t dim) {
  Builder& b = x.builder();
  const Ordered sorted = sort(sortable(x), dim);
  const Term at = expand(index_along(b, x.shape(), dim, DType::kI64), x.shape());
  const Term previous =
      gather(sorted.values, maximum(index_along(b, {x.dim(dim)}, 0, DType::kI64) - 1.0, 0), dim);
  const Term starts = logical_or(equal(at, 0), apply(OpKind::kNe, sorted.values, previous));
  // Where the run of each element starts.
  const Term start = prefix_scan({select(starts, at, 0)}, dim, [](const auto& earlier, const auto& later) {
    return std::vector<Term>{maximum(earlier[0], later[0])};
  })[0];
  const Picked out = at_rank(sorted, unsqueeze(arg_max(at - start, dim), {dim}), dim);
  return {cast(out.values, x.dtype()), out.indices};
}

Term quantile(Term x, Term q, int64_t dim, Interpolation how, bool skip_nan) {
  Builder& b = x.builder();
  const int64_t last = x.rank() - 1;
  const Term w = transpose(x, dim, last);
  const bool several = q.rank() == 1;
  const Term wanted = reshape(q, {several ? q.dim(0) : sym::Expr(1)});
  const Term numbers = numbers_of(w, last), end = size_as(b, DType::kI64, w.dim(last) - 1);
  const Term highest = cast(skip_nan ? maximum(numbers - 1.0, 0) : expand(end, numbers.shape()), x.dtype());
  Term rank = highest * wanted;  // [..., q]
  if (!skip_nan)
    rank = select(expand(less_equal(numbers, end), rank.shape()), expand(cast(end, x.dtype()), rank.shape()),
                  rank);
  if (how == Interpolation::kLower) rank = apply(OpKind::kFloor, rank);
  if (how == Interpolation::kHigher) rank = apply(OpKind::kCeil, rank);
  if (how == Interpolation::kNearest) rank = apply(OpKind::kRound, rank);
  const Ordered sorted = sort(w, last);
  const Term below = apply(OpKind::kFloor, rank);
  Term out = gather_elements(sorted.values, cast(below, DType::kI64), last);
  if (how == Interpolation::kLinear || how == Interpolation::kMidpoint) {
    const Term above = gather_elements(sorted.values, cast(apply(OpKind::kCeil, rank), DType::kI64), last);
    const Term part = how == Interpolation::kMidpoint ? number_like(rank, 0.5) : rank - below;
    // Equal neighbours, which may be infinite, have no difference.
    const Term mixed =
        select(less(part, 0.5), out + part * (above - out), above - (above - out) * subtract_from(1, part));
    out = select(equal(above, out), out, mixed);
  }
  if (!several) return squeeze(transpose(out, dim, last), {dim});
  Dims order{last};
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) order.push_back(d == last ? dim : d);
  return permute(out, order);
}

}  // namespace stridec::ops
