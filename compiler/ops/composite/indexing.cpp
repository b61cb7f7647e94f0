#include "compiler/ops/composite/indexing.h"

#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

Term one_hot(Term indices, sym::Expr depth, int64_t axis, Term off, Term on) {
  Builder& b = indices.builder();
  const int64_t rank = indices.rank() + 1;
  const Term wide = cast(indices, DType::kI64), n = size_as(b, DType::kI64, depth);
  const Term index = unsqueeze(select(less(wide, 0), wide + n, wide), {axis});
  return select(equal(positions_along(b, depth, axis, rank), index), on, off);
}

Term nonzero(Term x) {
  Builder& b = x.builder();
  if (x.rank() == 0) x = reshape(x, {1});
  const Term truth = is_bool(x.dtype()) ? x : apply(OpKind::kNe, x, 0);
  return coordinates(truth, b.fresh_symbol("nonzero", 0, count(x.shape())));
}

Term compress(Term x, Term condition, int64_t dim) {
  const Term where = nonzero(condition);
  return gather(x, reshape(where, {where.dim(1)}), dim);
}

Term reverse_sequence(Term x, Term given, int64_t batch, int64_t time) {
  Builder& b = x.builder();
  Shape lengths_shape(x.shape().size(), 1);
  lengths_shape[static_cast<size_t>(batch)] = x.dim(batch);
  const Term lengths = reshape(cast(given, DType::kI64), lengths_shape);
  const Term at = positions_along(b, x.dim(time), time, x.rank());
  const Term from = select(less(at, lengths), lengths - at - 1.0, at);
  return gather_elements(x, expand(from, x.shape()), time);
}

Term scatter_rows(Term past, Term update, std::optional<Term> start, int64_t axis, bool circular) {
  Builder& b = past.builder();
  Term at = positions_along(b, update.dim(axis), axis, past.rank());
  if (start) {
    Shape rows(past.shape().size(), 1);
    rows[0] = past.dim(0);
    at = at + reshape(cast(*start, DType::kI64), rows);
  }
  if (circular) at = apply(OpKind::kMod, at, size_as(b, DType::kI64, past.dim(axis)));
  return scatter_elements(past, expand(at, update.shape()), update, axis);
}

// ---- unique ----------------------------------------------------------------------------------------------

namespace {

Term sorted_order(Term x) { return sort(x, 0).indices; }

Term same_number(Term x, Term y) {
  const Term same = equal(x, y);
  if (!is_float(x.dtype())) return same;
  return logical_or(same, logical_and(apply(OpKind::kIsNan, x), apply(OpKind::kIsNan, y)));
}

// Indices that sort rows [n, width] lexicographically: stable sorts by each column, from the last to the
// first.
Term row_order(Term rows) {
  Builder& b = rows.builder();
  const Term start = index_along(b, {rows.dim(0)}, 0, DType::kI64);
  const LoopResult result = loop(b, rows.dim(1), std::nullopt, {start.id()}, [&](const LoopState& state) {
    const Term order(b, state.carried[0]);
    const Term column = squeeze(slice(rows, 1, rows.dim(1) - 1 - state.counter, 1), {1});
    return LoopStep{.condition = std::nullopt,
                    .carried = {gather(order, sorted_order(gather(column, order, 0)), 0).id()},
                    .stacked = {}};
  });
  return {b, result.carried[0]};
}

}  // namespace

namespace {

// Runs of the rows where `starts` is true at the first: their numbers, first positions and lengths.
struct Runs {
  Term of, first, length;
};
Runs runs_of(Term starts) {
  Builder& b = starts.builder();
  const sym::Expr n = starts.dim(0);
  const Term of = cumulative_sum(cast(starts, DType::kI64), 0) - 1.0, places = nonzero(starts);
  const sym::Expr found = places.dim(1);
  const Term first = reshape(places, {found});
  const Term ends = concat({slice(first, 0, sym::min(found, 1), found - sym::min(found, 1)),
                            expand(size_as(b, DType::kI64, n), {sym::min(found, 1)})},
                           0);
  return {of, first, ends - first};
}

}  // namespace

Unique unique_runs(Term x) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(0);
  const Term rows = x.rank() > 1 ? reshape(x, {n, count(x.shape(), 1, x.rank())}) : x;
  const Term at = index_along(b, {n}, 0, DType::kI64);
  const Term keys = is_bool(x.dtype()) ? cast(rows, DType::kU8) : rows;
  Term changes = apply(OpKind::kNe, keys, gather(keys, maximum(at - 1.0, 0), 0));
  if (x.rank() > 1) changes = reduce(OpKind::kReduceOr, changes, {1});
  const Runs runs = runs_of(logical_or(equal(at, 0), changes));
  return {gather(x, runs.first, 0), runs.first, runs.of, runs.length};
}

// After sorting, equal elements are adjacent, and the first of each run is the unique one. The sort is
// stable, so this element is also the first in the input.
Unique unique(Term given, bool in_order) {
  Builder& b = given.builder();
  const Term x = is_bool(given.dtype()) ? cast(given, DType::kU8) : given;
  const sym::Expr n = x.dim(0);
  const bool wide = x.rank() > 1;
  const Term rows = wide ? reshape(x, {n, count(x.shape(), 1, x.rank())}) : x;
  const Term order = wide ? row_order(rows) : sorted_order(rows);

  const Term at = index_along(b, {n}, 0, DType::kI64);
  const Term sorted = gather(rows, order, 0), previous = gather(sorted, maximum(at - 1.0, 0), 0);
  Term same = same_number(sorted, previous);
  if (wide) same = reduce(OpKind::kReduceAnd, same, {1});
  const Term starts = logical_or(equal(at, 0), logical_not(same));
  const Runs runs = runs_of(starts);
  const sym::Expr found = runs.first.dim(0);
  Term first = gather(order, runs.first, 0), counts = runs.length,
       inverse = scatter_elements(filled(b, {n}, DType::kI64, 0), order, runs.of, 0);
  if (!in_order) {  // in order of first appearance
    const Term appearance = sorted_order(first);
    first = gather(first, appearance, 0);
    counts = gather(counts, appearance, 0);
    const Term none = filled(b, {found}, DType::kI64, 0);
    const Term rank = scatter_elements(none, appearance, index_along(b, {found}, 0, DType::kI64), 0);
    inverse = gather(rank, inverse, 0);
  }
  return {cast(gather(x, first, 0), given.dtype()), first, inverse, counts};
}

}  // namespace stridec::ops
