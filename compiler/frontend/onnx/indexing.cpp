// Gather, scatter, one-hot, and data-dependent selection.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/helpers.h"
#include "compiler/sym/text.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_gather(Context& c) {
  const Term data = c.in(0);
  return {gather(data, c.in(1), c.axis(c.integer("axis", 0), data.rank()))};
}

Outputs gather_elements(Context& c) {
  const Term data = c.in(0);
  return {Term(c.b, c.b.add1(OpKind::kGatherElements, {data.id(), c.in(1).id()},
                             {{"dim", c.axis(c.integer("axis", 0), data.rank())}}))};
}

// Input 1: indices [..., number of dims addressed]. If that last size is not known at compile time, it
// follows from the rank of the tensor read or written, which has `rest` dims in addition to those of the
// indices. `rest` is negative if that rank is unknown too.
Term index_tuples(const Context& c, int64_t addressable, int64_t rest) {
  const Term indices = c.in(1);
  if (indices.rank() == 0 || indices.dim(indices.rank() - 1).is_const()) return indices;
  const sym::Expr size = indices.dim(indices.rank() - 1);
  const int64_t tuple = addressable - rest;
  if (rest < 0 || tuple < 0)
    c.unsupported(cat("the rank of the result depends on the last size of the indices, ",
                      sym::to_string(size), ", which is not known at compile time"),
                  "fix it with --dim, or declare the shape of the result in the model");
  c.b.require(sym::eq(size, tuple),
              cat("the indices address {0} dims, but the model was compiled for ", tuple), {size});
  Shape shape = indices.shape();
  shape.back() = tuple;
  return reshape(indices, shape);
}

Outputs gather_nd(Context& c) {
  const Term data = c.in(0);
  const int64_t addressable = data.rank() - c.integer("batch_dims", 0);
  const int64_t rest = c.declared_rank(0).value_or(-1) - (c.in(1).rank() - 1);
  return {Term(c.b, c.b.add1(OpKind::kGatherNd, {data.id(), index_tuples(c, addressable, rest).id()},
                             {{"batch_dims", c.integer("batch_dims", 0)}}))};
}

Outputs scatter_elements(Context& c) {
  const Term data = c.in(0);
  return {Term(c.b, c.b.add1(OpKind::kScatterElements, {data.id(), c.in(1).id(), c.in(2).id()},
                             {{"dim", c.axis(c.integer("axis", 0), data.rank())},
                              {"reduction", c.text("reduction", "none")}}))};
}

Outputs scatter_nd(Context& c) {
  const Term data = c.in(0), updates = c.in(2);
  const Term indices = index_tuples(c, data.rank(), updates.rank() - (c.in(1).rank() - 1));
  return {Term(c.b, c.b.add1(OpKind::kScatterNd, {data.id(), indices.id(), updates.id()},
                             {{"reduction", c.text("reduction", "none")}}))};
}

Outputs one_hot(Context& c) {
  const Term indices = c.in(0), values = c.in(2);
  const sym::Expr depth =
      c.b.elements_of(cast(reshape(c.in(1), {}), DType::kI64), "depth", 1, kLargestSize).at(0);
  const int64_t given = c.integer("axis", -1), rank = indices.rank() + 1;
  const int64_t axis = c.axis(given, rank);
  const Term wide = cast(indices, DType::kI64), n = size_as(c.b, DType::kI64, depth);
  const Term index = unsqueeze(select(less(wide, 0), wide + n, wide), {axis});
  Shape along(static_cast<size_t>(rank), 1);
  along[static_cast<size_t>(axis)] = depth;
  const Term hit = equal(index_along(c.b, along, axis, DType::kI64), index);
  const Term off = reshape(slice(values, 0, 0, 1), {}), on = reshape(slice(values, 0, 1, 1), {});
  return {select(hit, on, off)};
}

// The coordinates of nonzero elements, [rank, count]. The count is a symbol bound at run time.
Term nonzero(Builder& b, Term x) {
  if (x.rank() == 0) x = reshape(x, {1});
  const Term truth = is_bool(x.dtype()) ? x : apply(OpKind::kNe, x, 0);
  const sym::Expr found = b.fresh_symbol("nonzero", 0, count(x.shape()));
  return {b, b.add1(OpKind::kNonZero, {truth.id()}, {{"count", found}})};
}

Outputs op_nonzero(Context& c) {
  const Term out = nonzero(c.b, c.in(0));
  return {c.in(0).rank() == 0 ? slice(out, 0, 0, 0) : out};
}

Outputs compress(Context& c) {
  Term x = c.in(0);
  int64_t axis = 0;
  if (c.has_attribute("axis"))
    axis = c.axis(c.integer("axis"), x.rank());
  else
    x = reshape(x, {count(x.shape())});
  const Term where = nonzero(c.b, c.in(1));
  return {gather(x, reshape(where, {where.dim(1)}), axis)};
}

// Reverses each batch row up to its own length.
Outputs reverse_sequence(Context& c) {
  const Term x = c.in(0);
  const int64_t batch = c.axis(c.integer("batch_axis", 1), x.rank()),
                time = c.axis(c.integer("time_axis", 0), x.rank());
  Shape lengths_shape(x.shape().size(), 1), time_shape(x.shape().size(), 1);
  lengths_shape[static_cast<size_t>(batch)] = x.dim(batch);
  time_shape[static_cast<size_t>(time)] = x.dim(time);
  const Term lengths = reshape(cast(c.in(1), DType::kI64), lengths_shape);
  const Term at = index_along(c.b, time_shape, time, DType::kI64);
  const Term from = select(less(at, lengths), lengths - at - 1.0, at);
  return {
      Term(c.b, c.b.add1(OpKind::kGatherElements, {x.id(), expand(from, x.shape()).id()}, {{"dim", time}}))};
}

// Writes the new rows into past at write_indices, per batch row.
Outputs tensor_scatter(Context& c) {
  const Term past = c.in(0), update = c.in(1);
  const int64_t axis = c.axis(c.integer("axis", -2), past.rank());
  Shape time(past.shape().size(), 1), rows(past.shape().size(), 1);
  time[static_cast<size_t>(axis)] = update.dim(axis);
  rows[0] = past.dim(0);
  Term at = index_along(c.b, time, axis, DType::kI64);
  if (c.has(2)) at = at + reshape(cast(c.in(2), DType::kI64), rows);
  if (c.text("mode", "linear") == "circular")
    at = apply(OpKind::kMod, at, size_as(c.b, DType::kI64, past.dim(axis)));
  return {
      Term(c.b, c.b.add1(OpKind::kScatterElements, {past.id(), expand(at, update.shape()).id(), update.id()},
                         {{"dim", axis}, {"reduction", std::string("none")}}))};
}

// ---- unique ----------------------------------------------------------------------------------------------

Term sorted_order(Term x) {
  return {x.builder(), x.builder().add(OpKind::kSort, {x.id()}, {{"dim", int64_t{0}}})[1]};
}

Term same_number(Term x, Term y) {
  const Term same = equal(x, y);
  if (!is_float(x.dtype())) return same;
  return logical_or(same, logical_and(apply(OpKind::kIsNan, x), apply(OpKind::kIsNan, y)));
}

Term scatter(Term data, Term index, Term updates) {
  return {data.builder(), data.builder().add1(OpKind::kScatterElements, {data.id(), index.id(), updates.id()},
                                              {{"dim", int64_t{0}}, {"reduction", std::string("none")}})};
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

// After sorting, equal elements are adjacent, and the first of each run is the unique one. The sort is
// stable, so this element is also the first in the input.
Outputs unique(Context& c) {
  Builder& b = c.b;
  const Term given = c.in(0), x = is_bool(given.dtype()) ? cast(given, DType::kU8) : given;
  const bool flat = !c.has_attribute("axis");
  const int64_t axis = flat ? 0 : c.axis(c.integer("axis"), x.rank());
  const Term turned = flat ? reshape(x, {count(x.shape())}) : transpose(x, 0, axis);
  const sym::Expr n = turned.dim(0);
  const bool wide = turned.rank() > 1;
  const Term rows = wide ? reshape(turned, {n, count(turned.shape(), 1, turned.rank())}) : turned;
  const Term order = wide ? row_order(rows) : sorted_order(rows);

  const Term at = index_along(b, {n}, 0, DType::kI64);
  const Term sorted = gather(rows, order, 0), previous = gather(sorted, maximum(at - 1.0, 0), 0);
  Term same = same_number(sorted, previous);
  if (wide) same = reduce(OpKind::kReduceAnd, same, {1});
  const Term starts = logical_or(equal(at, 0), logical_not(same));
  const Term run =
      Term(b, b.add1(OpKind::kCumSum, {cast(starts, DType::kI64).id()},
                     {{"dim", int64_t{0}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}})) -
      1.0;
  const Term places = nonzero(b, starts);
  const sym::Expr found = places.dim(1);
  const Term place = reshape(places, {found});
  const Term ends = concat({slice(place, 0, sym::min(found, 1), found - sym::min(found, 1)),
                            expand(size_as(b, DType::kI64, n), {sym::min(found, 1)})},
                           0);
  Term first = gather(order, place, 0), counts = ends - place,
       inverse = scatter(filled(b, {n}, DType::kI64, 0), order, run);
  if (c.integer("sorted", 1) == 0) {  // in order of first appearance
    const Term appearance = sorted_order(first);
    first = gather(first, appearance, 0);
    counts = gather(counts, appearance, 0);
    const Term rank =
        scatter(filled(b, {found}, DType::kI64, 0), appearance, index_along(b, {found}, 0, DType::kI64));
    inverse = gather(rank, inverse, 0);
  }
  const Term picked = gather(turned, first, 0);
  return {cast(flat ? picked : transpose(picked, 0, axis), given.dtype()), first, inverse, counts};
}

constexpr Row kRows[] = {
    {"Compress", compress},
    {"Gather", op_gather},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"NonZero", op_nonzero},
    {"OneHot", one_hot},
    {"ReverseSequence", reverse_sequence},
    {"Scatter", scatter_elements},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"TensorScatter", tensor_scatter},
    {"Unique", unique},
    {"Unique", unique, 1, kAnyLater, "com.microsoft"},
    {"GatherND", gather_nd, 1, kAnyLater, "com.microsoft"},
};

}  // namespace

std::span<const Row> indexing_rows() { return kRows; }

}  // namespace stridec::onnx
