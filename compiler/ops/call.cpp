#include "compiler/ops/call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

using Arguments = std::vector<sym::Expr>;
using Values = std::vector<ValueId>;

// ---- suppress: corners, eligible, most, overlap -> kept ---------------------------------------------------

Inferred suppress_shape(Builder& b, const Node& node) {
  expect_inputs(node, 4, 4);
  const Type &corners = b.type(node.inputs[0]), &eligible = b.type(node.inputs[1]);
  if (corners.dtype != DType::kF32 || corners.shape.size() != 3)
    does_not_fit(cat("suppress: corners are f32 [rows, 4, boxes], not ", graph::to_string(corners)));
  if (!is_bool(eligible.dtype) || eligible.shape.size() != 2)
    does_not_fit(cat("suppress: the mask of eligible boxes must be bool [rows, boxes], not ",
                     graph::to_string(eligible)));
  b.require(sym::eq(corners.shape[1], 4), "suppress: {0} corners instead of 4", {corners.shape[1]});
  for (size_t d : {0, 1})
    b.require(sym::eq(eligible.shape[d], corners.shape[2 * d]), "suppress: {0} and {1} boxes or rows",
              {eligible.shape[d], corners.shape[2 * d]});
  if (b.type(node.inputs[2]) != Type{DType::kI64, {}} || b.type(node.inputs[3]) != Type{DType::kF32, {}})
    does_not_fit("suppress: the limit of boxes must be an i64 scalar, and the overlap an f32 scalar");
  return {{eligible}, {}};
}

Arguments suppress_arguments(Lowering& l, const Node& node) { return l.view(node.outputs[0]).shape; }

// ---- fourier: x [..., n, 2], waves [n, 2] -> y ------------------------------------------------------------

Inferred fourier_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  const Type &x = b.type(node.inputs[0]), &waves = b.type(node.inputs[1]);
  if ((x.dtype != DType::kF32 && x.dtype != DType::kF64) || waves.dtype != x.dtype)
    does_not_fit("fourier: signal and waves are both f32 or both f64");
  const size_t rank = x.shape.size();
  if (rank < 2 || waves.shape.size() != 2) does_not_fit("fourier: a signal [..., n, 2] and waves [n, 2]");
  for (size_t d : {0, 1})
    b.require(sym::eq(x.shape[rank - 2 + d], waves.shape[d]), "fourier: a signal of {0} and waves of {1}",
              {x.shape[rank - 2 + d], waves.shape[d]});
  b.require(sym::eq(waves.shape[1], 2), "fourier: a complex number has {0} parts instead of 2",
            {waves.shape[1]});
  return {{x}, {}};
}

Arguments fourier_arguments(Lowering& l, const Node& node) {
  const Shape& shape = l.view(node.outputs[0]).shape;
  const size_t rank = shape.size();
  return {sym::product({shape.data(), rank - 2}), shape[rank - 2], node.attributes.integer("backward")};
}

// The matrix is symmetric, so its adjoint is its conjugate, which is the transform in the other direction.
Values fourier_gradient(Builder& b, const Node& node, const Values& outputs) {
  return add_call(b, "fourier", {outputs[0], node.inputs[1]},
                  {{"backward", 1 - node.attributes.integer("backward")}});
}

// ---- image_size: bytes -> [height, width]; image_decode: bytes -> pixels, whether they are complete -------

constexpr const char* kFormats[] = {"rgb", "bgr", "grayscale"};

int64_t format_of(const Node& node) {
  const std::string& format = node.attributes.text("format");
  for (int64_t i = 0; i < 3; ++i)
    if (format == kFormats[i]) return i;
  STRIDEC_CHECK(false, format);
}

void expect_bytes(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Type& type = b.type(node.inputs[0]);
  if (type.dtype != DType::kU8 || type.shape.size() != 1)
    does_not_fit(cat("an encoded image is u8 of one dim, not ", graph::to_string(type)));
}

Inferred image_size_shape(Builder& b, const Node& node) {
  expect_bytes(b, node);
  return {{{DType::kI64, {2}}}, {}};
}

Arguments image_size_arguments(Lowering& l, const Node& node) { return {l.view(node.inputs[0]).shape[0]}; }

Inferred image_decode_shape(Builder& b, const Node& node) {
  expect_bytes(b, node);
  const Shape shape{node.attributes.expr("height"), node.attributes.expr("width"),
                    format_of(node) == 2 ? 1 : 3};
  return {{{DType::kU8, shape}, {DType::kI64, {}}}, {}};
}

Arguments image_decode_arguments(Lowering& l, const Node& node) {
  return {l.view(node.inputs[0]).shape[0], node.attributes.expr("height"), node.attributes.expr("width"),
          format_of(node)};
}

// ---- draws -----------------------------------------------------------------------------------------------

// Checks the only input, the generator's state. Returns how many numbers the node draws.
sym::Expr drawn_count(Builder& b, const Node& node, const std::string& name, const Type& state) {
  expect_inputs(node, 1, 1);
  if (b.type(node.inputs[0]) != state)
    does_not_fit(cat(name, ": the state must be ", graph::to_string(state), ", not ",
                     graph::to_string(b.type(node.inputs[0]))));
  const sym::Expr count = node.attributes.expr("count");
  b.require(sym::ge(count, 0), name + ": {0} numbers", {count});
  return count;
}

// ---- mersenne_draw: state -> numbers, state ---------------------------------------------------------------

// [count], or [3, count] for normals.
Inferred mersenne_draw_shape(Builder& b, const Node& node) {
  const Type state{DType::kI64, {kMersenneState}};
  const sym::Expr count = drawn_count(b, node, "mersenne_draw", state), what = node.attributes.expr("what");
  if (what.is_const(3)) return {{{DType::kI64, {3, count}}, state}, {}};
  return {{{DType::kI64, {count}}, state}, {}};
}

Arguments mersenne_draw_arguments(Lowering&, const Node& node) {
  return {node.attributes.expr("what"), node.attributes.expr("count")};
}

// ---- philox_draw: state -> numbers, state -----------------------------------------------------------------

Inferred philox_draw_shape(Builder& b, const Node& node) {
  const Type state{DType::kI64, {kPhiloxState}};
  const sym::Expr count = drawn_count(b, node, "philox_draw", state), what = node.attributes.expr("what");
  const bool narrow = what.is_const(2) || what.is_const(4) || what.is_const(5);
  const DType dtype = narrow ? DType::kF32 : what.is_const(3) ? DType::kF64 : DType::kI64;
  return {{{dtype, {count}}, state}, {}};
}

Arguments philox_draw_arguments(Lowering&, const Node& node) {
  return {node.attributes.expr("what"), node.attributes.expr("count"), node.attributes.expr("layout")};
}

// ---- eigen: x [..., n, n] or [..., n, n, 2] -> values [..., n, 2], vectors [..., n, n, 2] ---------------

Inferred eigen_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Type& x = b.type(node.inputs[0]);
  const bool complex = node.attributes.integer("complex") != 0;
  if (x.dtype != DType::kF32 && x.dtype != DType::kF64)
    does_not_fit(cat("eigen: matrices are f32 or f64, not ", name(x.dtype)));
  Shape shape = x.shape;
  if (complex && !shape.empty()) {
    b.require(sym::eq(shape.back(), 2), "eigen: a complex number has {0} parts instead of 2", {shape.back()});
    shape.pop_back();
  }
  if (shape.size() < 2) does_not_fit(cat("eigen: a matrix is wanted, not ", graph::to_string(x)));
  const sym::Expr n = shape.back();
  b.require(sym::eq(shape[shape.size() - 2], n), "a matrix of {0} x {1} is not square",
            {shape[shape.size() - 2], n});
  Shape values(shape.begin(), shape.end() - 1), vectors = shape;
  values.emplace_back(2);
  vectors.emplace_back(2);
  if (!node.attributes.integer("vectors")) vectors = {0};
  return {{{x.dtype, values}, {x.dtype, vectors}}, {}};
}

Arguments eigen_arguments(Lowering& l, const Node& node) {
  const Shape& values = l.view(node.outputs[0]).shape;
  const size_t rank = values.size();
  return {sym::product({values.data(), rank - 2}), values[rank - 2], node.attributes.integer("complex"),
          node.attributes.integer("vectors")};
}

Values eigen_gradient(Builder&, const Node&, const Values&) {
  fail(ErrorKind::kUnsupported, "no-gradient",
       "eigenvalues of matrices that are not symmetric have no gradient",
       "eigh has one, for symmetric matrices");
}

}  // namespace

// ---- the primitive ----------------------------------------------------------------------------------------

const CallDef& call_def(const Node& node) {
  const std::string routine = node.attributes.text_or("routine", "");
  const auto found = std::ranges::find(call_defs(), routine, &CallDef::routine);
  if (found == call_defs().end()) does_not_fit(cat("call: a graph cannot call a routine '", routine, "'"));
  return *found;
}

namespace {

Inferred call_shape(Builder& b, const Node& node) { return call_def(node).shape(b, node); }

void call_lower(Lowering& l, const Node& node) {
  const CallDef& def = call_def(node);
  loop::Call call{
      .routine = std::string(def.routine), .reads = {}, .writes = {}, .arguments = {}, .nodes = {}};
  for (ValueId input : node.inputs)
    call.reads.push_back(l.materialise(l.view(input), cat(def.routine, "_input")).buffer);
  for (ValueId output : node.outputs) call.writes.push_back(l.define(output).buffer);
  call.arguments = def.arguments(l, node);
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

Values call_gradient(Builder& b, const Node& node, const Values& outputs) {
  const Gradient& gradient = call_def(node).gradient;
  return gradient.is_zero() ? Values() : gradient.rule()(b, node, outputs);
}

}  // namespace

std::span<const CallDef> call_defs() {
  static const CallDef kRows[] = {
      {"suppress", {}, suppress_shape, suppress_arguments, Gradient::flat("the result is a bool")},
      {"fourier",
       {"backward"},
       fourier_shape,
       fourier_arguments,
       Gradient::by(fourier_gradient, "x: fourier(g) of the other direction", "waves are constants")},
      {"image_size", {}, image_size_shape, image_size_arguments, Gradient::none("bytes and integers")},
      {"image_decode",
       {"height", "width", "format"},
       image_decode_shape,
       image_decode_arguments,
       Gradient::none("bytes")},
      {"mersenne_draw",
       {"what", "count"},
       mersenne_draw_shape,
       mersenne_draw_arguments,
       Gradient::none("numbers that are drawn")},
      {"philox_draw",
       {"what", "count", "layout"},
       philox_draw_shape,
       philox_draw_arguments,
       Gradient::none("numbers that are drawn")},
      {"eigen",
       {"complex", "vectors"},
       eigen_shape,
       eigen_arguments,
       Gradient::by(eigen_gradient, "none", "refused")},
  };
  return kRows;
}

const OpDef def_kCall{call_shape, call_lower,
                      Gradient::by(call_gradient, "that of the routine", "each routine states its own")};

Values add_call(Builder& builder, const std::string& routine, Values inputs, Attributes attributes) {
  attributes.set("routine", routine);
  return builder.add(OpKind::kCall, std::move(inputs), std::move(attributes));
}

}  // namespace stridec::ops
