// Shape operators: views, joins, and tensors made from sizes.
#include <algorithm>
#include <numeric>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/shape.h"
#include "compiler/ops/helpers.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_reshape(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> given;
  if (c.version >= 5) {
    given = c.sizes_of(1, "shape", -1, kLargestSize);
  } else {
    for (int64_t d : c.integers("shape")) given.emplace_back(d);
  }
  const bool zero_copies = c.version < 14 || c.integer("allowzero", 0) == 0;
  return {reshape(x, reshape_target(x, given, zero_copies))};
}

Outputs flatten(Context& c) {
  const Term x = c.in(0);
  const int64_t given = c.integer("axis", 1);
  const int64_t axis = given == x.rank() ? given : c.axis(given, std::max<int64_t>(x.rank(), 1));
  return {reshape(x, {count(x.shape(), 0, axis), count(x.shape(), axis, x.rank())})};
}

Outputs op_squeeze(Context& c) {
  const Term x = c.in(0);
  if (const std::optional<Axes> axes = c.axes_of(1, "axes", x.rank())) return {squeeze_axes(x, *axes)};
  return {squeeze_ones(x, c.declared_rank(0), c.wants(0) ? cat("'", c.node.outputs[0], "'") : "the result")};
}

Outputs op_unsqueeze(Context& c) {
  const Term x = c.in(0);
  const std::optional<int64_t> more = c.version >= 13 ? sym::as_const(count(c.in(1).shape()))
                                                      : static_cast<int64_t>(c.integers("axes").size());
  if (!more)
    c.unsupported(cat("the number of axes must be known at compile time, but that of ", c.b.display(c.in(1)),
                      " depends on the inputs"));
  const std::optional<Axes> axes = c.axes_of(1, "axes", x.rank() + *more);
  if (!axes) c.does_not_fit("axes must be given");
  return {unsqueeze_axes(x, *axes)};
}

Outputs op_transpose(Context& c) {
  const Term x = c.in(0);
  Dims order(static_cast<size_t>(x.rank()));
  std::iota(order.rbegin(), order.rend(), 0);
  if (c.has_attribute("perm")) order = c.axes(c.integers("perm"), x.rank());
  if (static_cast<int64_t>(order.size()) != x.rank())
    c.does_not_fit(cat("perm has ", order.size(), " axes for a tensor of rank ", x.rank()));
  return {permute(x, order)};
}

Outputs op_expand(Context& c) {
  const Term x = c.in(0);
  const Shape target = c.sizes_of(1, "shape", 0, kLargestSize);
  return {Term(c.b, broadcast_to(c.b, x, target))};
}

Outputs op_concat(Context& c) {
  std::vector<Term> parts;
  for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(c.in(i));
  return {concat(parts, c.axis(c.integer("axis", c.version < 4 ? 1 : 0), parts.at(0).rank()))};
}

Outputs split(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const auto parts = c.node.outputs.size();
  std::vector<sym::Expr> sizes;
  if (c.version >= 13 && c.has(1)) {
    sizes = c.sizes_of(1, "split", 0, x.dim(axis));
  } else if (c.has_attribute("split")) {
    for (int64_t s : c.integers("split")) sizes.emplace_back(s);
  } else {
    // Equal parts, except for a shorter last one.
    const auto n =
        c.version >= 18 ? c.integer("num_outputs", static_cast<int64_t>(parts)) : static_cast<int64_t>(parts);
    sizes = equal_parts(c.b, x.dim(axis), n);
    if (c.version < 18)
      c.b.require(sym::eq(sizes.front() * n, x.dim(axis)),
                  cat("{0} does not divide into ", n, " equal parts"), {x.dim(axis)});
    else
      c.b.require(sym::ge(sizes.back(), 0),
                  cat("{0} does not divide into ", n, " parts: all but the last are {1} long"),
                  {x.dim(axis), sizes.front()});
  }
  if (sizes.size() != parts)
    c.does_not_fit(cat("split gives ", sizes.size(), " sizes for ", parts, " outputs"));
  const std::vector<Term> out = split_sizes(x, axis, sizes);
  return {out.begin(), out.end()};
}

// The node's axes, or the first `count` axes if it has none.
Axes axes_or_first(const Context& c, size_t input, int64_t rank, size_t count) {
  if (auto given = c.axes_of(input, "axes", rank)) return *given;
  std::vector<sym::Expr> first;
  for (size_t i = 0; i < count; ++i) first.emplace_back(i);
  return axes_of(c.b, first, rank);
}

Outputs op_slice(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> starts, ends, steps;
  if (c.version < 10) {
    for (int64_t v : c.integers("starts")) starts.emplace_back(v);
    for (int64_t v : c.integers("ends")) ends.emplace_back(v);
  } else {
    starts = c.sizes_of(1, "starts", -kLargestSize, kLargestSize);
    ends = c.sizes_of(2, "ends", -kLargestSize, kLargestSize);
    if (c.has(4)) steps = c.sizes_of(4, "steps", -kLargestSize, kLargestSize);
  }
  const Axes axes = axes_or_first(c, 3, x.rank(), starts.size());
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.at.size() || starts.size() != steps.size())
    c.does_not_fit(cat("slice has ", starts.size(), " starts, ", ends.size(), " ends, ", axes.at.size(),
                       " axes and ", steps.size(), " steps"));
  return {slice_axes(x, axes, {starts, ends, steps})};
}

Outputs op_pad(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> pads;
  if (c.version >= 11) {
    pads = c.sizes_of(1, "pads", -kLargestSize, kLargestSize);
  } else {
    for (int64_t p : c.integers(c.version < 2 ? "paddings" : "pads")) pads.emplace_back(p);
  }
  const Axes axes = axes_or_first(c, 3, x.rank(), static_cast<size_t>(x.rank()));
  if (pads.size() != 2 * axes.at.size())
    c.does_not_fit(cat("pads has ", pads.size(), " values for ", axes.at.size(), " axes"));
  const auto half = pads.begin() + static_cast<int64_t>(axes.at.size());
  Term value = number_like(x, c.version < 11 ? c.number("value", 0) : 0);
  if (c.version >= 11 && c.has(2)) value = reshape(c.in(2), {});
  return {pad_axes(x, axes, {{pads.begin(), half}, {half, pads.end()}, c.text("mode", "constant")}, value)};
}

Outputs op_tile(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> repeats;
  if (c.version < 6) {  // tiles and axis are scalars
    repeats.assign(x.shape().size(), 1);
    repeats.at(static_cast<size_t>(c.axis(c.integers_of(2, "axis").at(0), x.rank()))) =
        c.size_of(1, "tiles", 0, kLargestSize);
  } else {
    repeats = c.sizes_of(1, "repeats", 0, kLargestSize);
  }
  return {tile(x, repeats)};
}

Outputs shape_of(Context& c) {
  const Shape shape = c.in(0).shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const auto cut = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = cut(c.integer("start", 0)), end = std::max(cut(c.integer("end", rank)), start);
  const Shape part(shape.begin() + start, shape.begin() + end);
  return {Term(c.b, c.b.elements(part, {end - start}))};
}

Outputs size_of(Context& c) { return {Term(c.b, c.b.elements({count(c.in(0).shape())}, {}))}; }

Outputs constant(Context& c) {
  if (const Tensor* t = c.tensor("value"); t && t->elem_type == kElemString)
    return {constant_strings(c.b, t->strings, {t->dims.begin(), t->dims.end()})};
  if (c.has_attribute("value_string")) return {constant_strings(c.b, c.texts("value_string"), {})};
  if (const auto texts = c.texts("value_strings"); c.has_attribute("value_strings"))
    return {constant_strings(c.b, texts, {static_cast<int64_t>(texts.size())})};
  if (const Tensor* t = c.tensor("value")) return {c.constant(*t)};
  if (const Tensor* t = c.tensor("sparse_value")) return {c.constant(*t)};
  if (const Attribute* a = c.node.find("value_int")) return {Term(c.b, c.b.elements({a->ints.at(0)}, {}))};
  if (const Attribute* a = c.node.find("value_ints")) return {Term(c.b, c.b.integers(a->ints))};
  const Attribute* floats = c.node.find("value_floats");
  if (const Attribute* one = c.node.find("value_float"))
    return {c.number(DType::kF32, static_cast<double>(one->floats.at(0)))};
  if (!floats) c.unsupported("a constant without a value");
  std::vector<uint8_t> bytes(floats->floats.size() * 4);
  for (size_t i = 0; i < floats->floats.size(); ++i)
    write_float(DType::kF32, static_cast<double>(floats->floats[i]), bytes.data() + 4 * i);
  return {Term(c.b, c.b.constant("", {DType::kF32, {static_cast<int64_t>(floats->floats.size())}},
                                 graph::own(std::move(bytes))))};
}

Outputs constant_of_shape(Context& c) {
  const Shape shape = c.sizes_of(0, "shape", 0, kLargestSize);
  const Tensor* value = c.tensor("value");
  const Term scalar = value ? reshape(c.constant(*value), {}) : c.number(DType::kF32, 0);
  return {expand(scalar, shape)};
}

Outputs range(Context& c) { return {arange(c.in(0), c.in(1), c.in(2))}; }

Outputs eye_like(Context& c) {
  const Term x = c.in(0);
  return {cast(eye(c.b, x.shape(), c.integer("k", 0)), c.dtype("dtype", x.dtype()))};
}

Outputs trilu(Context& c) {
  sym::Expr k = 0;
  if (c.has(1)) k = c.size_of(1, "k", -kLargestSize, kLargestSize);
  return {triangle(c.in(0), k, c.integer("upper", 1) != 0)};
}

Outputs op_depth_to_space(Context& c) {
  return {depth_to_space(c.in(0), c.integer("blocksize"), c.text("mode", "DCR") == "CRD")};
}
Outputs op_space_to_depth(Context& c) { return {space_to_depth(c.in(0), c.integer("blocksize"))}; }

constexpr Row kRows[] = {
    {"Concat", op_concat},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"DepthToSpace", op_depth_to_space},
    {"Expand", op_expand},
    {"EyeLike", eye_like},
    {"Flatten", flatten},
    {"Pad", op_pad},
    {"Range", range},
    {"Reshape", op_reshape},
    {"Shape", shape_of},
    {"Size", size_of},
    {"Slice", op_slice},
    {"SpaceToDepth", op_space_to_depth},
    {"Split", split},
    {"Squeeze", op_squeeze},
    {"Tile", op_tile},
    {"Transpose", op_transpose},
    {"Trilu", trilu},
    {"Trilu", trilu, 1, kAnyLater, "com.microsoft"},
    {"Range", range, 1, kAnyLater, "com.microsoft"},
    {"Unsqueeze", op_unsqueeze},
};

}  // namespace

std::span<const Row> shape_rows() { return kRows; }

}  // namespace stridec::onnx
