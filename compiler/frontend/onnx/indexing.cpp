// Gather, scatter, one-hot, and data-dependent selection.
#include "compiler/ops/composite/indexing.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/nodes.h"
#include "compiler/sym/text.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_gather(Context& c) {
  const Term data = c.in(0);
  return {gather(data, c.in(1), c.axis(c.integer("axis", 0), data.rank()))};
}

Outputs op_gather_elements(Context& c) {
  const Term data = c.in(0);
  return {gather_elements(data, c.in(1), c.axis(c.integer("axis", 0), data.rank()))};
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

Outputs op_gather_nd(Context& c) {
  const Term data = c.in(0);
  const int64_t batch_dims = c.integer("batch_dims", 0);
  const int64_t rest = c.declared_rank(0).value_or(-1) - (c.in(1).rank() - 1);
  return {gather_nd(data, index_tuples(c, data.rank() - batch_dims, rest), batch_dims)};
}

Outputs op_scatter_elements(Context& c) {
  const Term data = c.in(0);
  return {scatter_elements(data, c.in(1), c.in(2), c.axis(c.integer("axis", 0), data.rank()),
                           c.text("reduction", "none"))};
}

Outputs op_scatter_nd(Context& c) {
  const Term data = c.in(0), updates = c.in(2);
  const Term indices = index_tuples(c, data.rank(), updates.rank() - (c.in(1).rank() - 1));
  return {scatter_nd(data, indices, updates, c.text("reduction", "none"))};
}

Outputs op_one_hot(Context& c) {
  const Term indices = c.in(0), values = c.in(2);
  const sym::Expr depth =
      c.b.elements_of(cast(reshape(c.in(1), {}), DType::kI64), "depth", 1, kLargestSize).at(0);
  const int64_t axis = c.axis(c.integer("axis", -1), indices.rank() + 1);
  const auto value = [&](int64_t i) { return reshape(slice(values, 0, i, 1), {}); };
  const Term off = value(0);
  return {one_hot(indices, depth, axis, off, value(1))};
}

Outputs op_nonzero(Context& c) {
  const Term out = nonzero(c.in(0));
  return {c.in(0).rank() == 0 ? slice(out, 0, 0, 0) : out};
}

Outputs op_compress(Context& c) {
  const Term x = c.in(0);
  if (c.has_attribute("axis")) return {compress(x, c.in(1), c.axis(c.integer("axis"), x.rank()))};
  return {compress(reshape(x, {count(x.shape())}), c.in(1), 0)};
}

Outputs op_reverse_sequence(Context& c) {
  const Term x = c.in(0);
  return {reverse_sequence(x, c.in(1), c.axis(c.integer("batch_axis", 1), x.rank()),
                           c.axis(c.integer("time_axis", 0), x.rank()))};
}

Outputs tensor_scatter(Context& c) {
  const Term past = c.in(0);
  return {scatter_rows(past, c.in(1), c.optional(2), c.axis(c.integer("axis", -2), past.rank()),
                       c.text("mode", "linear") == "circular")};
}

// Without an axis, of all elements.
Outputs op_unique(Context& c) {
  const Term x = c.in(0);
  const bool flat = !c.has_attribute("axis");
  const int64_t axis = flat ? 0 : c.axis(c.integer("axis"), x.rank());
  const Unique u =
      unique(flat ? reshape(x, {count(x.shape())}) : transpose(x, 0, axis), c.integer("sorted", 1) != 0);
  return {flat ? u.values : transpose(u.values, 0, axis), u.first, u.inverse, u.counts};
}

constexpr Row kRows[] = {
    {"Compress", op_compress},
    {"Gather", op_gather},
    {"GatherElements", op_gather_elements},
    {"GatherND", op_gather_nd},
    {"NonZero", op_nonzero},
    {"OneHot", op_one_hot},
    {"ReverseSequence", op_reverse_sequence},
    {"Scatter", op_scatter_elements},
    {"ScatterElements", op_scatter_elements},
    {"ScatterND", op_scatter_nd},
    {"TensorScatter", tensor_scatter},
    {"Unique", op_unique},
    {"Unique", op_unique, 1, kAnyLater, "com.microsoft"},
    {"GatherND", op_gather_nd, 1, kAnyLater, "com.microsoft"},
};

}  // namespace

std::span<const Row> indexing_rows() { return kRows; }

}  // namespace stridec::onnx
