// Contractions: dot_general, convolution, transposed convolution. Each is one nest whose body is a `reduce
// sum` of the product of two loads. Dims of extent 1 are omitted, so that the nest's dims show what kind of
// contraction it is.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

DType accumulator(const Node& node, DType x) {
  if (node.attributes.find("accumulate")) return node.attributes.dtype("accumulate");
  if (is_integer(x) && info(x).bits <= 8) return DType::kI32;
  return compute_dtype(x);
}

DType result_dtype(const Node& node, DType x) {
  if (node.attributes.find("to")) return node.attributes.dtype("to");
  return is_integer(x) ? accumulator(node, x) : x;
}

// Operands are floats of one dtype, or both 8-bit floats, or integers of any dtypes. Narrow ones are widened
// to the accumulator.
void expect_operands(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  const DType x = b.dtype(node.inputs[0]), y = b.dtype(node.inputs[1]);
  const bool bytes = byte_size(x) == 1 && byte_size(y) == 1;
  if (is_bool(x) || is_bool(y) || is_float(x) != is_float(y) || (is_float(x) && x != y && !bytes))
    does_not_fit(cat(graph::name(node.kind), ": operands of ", name(x), " and ", name(y)));
}

// A parallel or reduction dim. For extent 1 no dim is made and the index is 0.
sym::Expr dim_unless_one(loop::NestBuilder& n, sym::Expr extent, const std::string& hint) {
  return extent.is_const(1) ? sym::Expr(0) : n.dim(extent, hint);
}

loop::Value reduce_products(loop::NestBuilder& n, const std::vector<sym::Expr>& extents,
                            const std::function<loop::Value(const std::vector<sym::Expr>&)>& product,
                            int64_t byte_blocks = 0) {
  std::vector<sym::Expr> real;
  for (sym::Expr extent : extents)
    if (!extent.is_const(1)) real.push_back(extent);
  auto spread = [&](const std::vector<sym::Expr>& at) {
    std::vector<sym::Expr> all;
    size_t next = 0;
    for (sym::Expr extent : extents) all.push_back(extent.is_const(1) ? sym::Expr(0) : at[next++]);
    return all;
  };
  if (real.empty()) return product(spread({}));
  return n.reduce(
      loop::Combine::kSum, real, [&](const std::vector<sym::Expr>& at) { return product(spread(at)); },
      byte_blocks);
}

// ---- dot_general -----------------------------------------------------------------------------------------

std::vector<int64_t> free_dims(int rank, const std::vector<int64_t>& batch,
                               const std::vector<int64_t>& contract) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(batch.begin(), batch.end(), d) == batch.end() &&
        std::find(contract.begin(), contract.end(), d) == contract.end())
      out.push_back(d);
  return out;
}

// Checks that the dims of one operand are distinct.
void expect_distinct(std::vector<int64_t> dims, const std::vector<int64_t>& more, size_t rank) {
  dims.insert(dims.end(), more.begin(), more.end());
  for (int64_t dim : dims) STRIDEC_CHECK(dim >= 0);
  normal_dims(std::move(dims), static_cast<int>(rank), "matmul");
}

Inferred dot_shape(Builder& b, const Node& node) {
  expect_operands(b, node);
  const Shape &x = b.shape(node.inputs[0]), &y = b.shape(node.inputs[1]);
  const auto &batch_a = node.attributes.integers("batch_a"), &batch_b = node.attributes.integers("batch_b");
  const auto &contract_a = node.attributes.integers("contract_a"),
             &contract_b = node.attributes.integers("contract_b");
  STRIDEC_CHECK(batch_a.size() == batch_b.size() && contract_a.size() == contract_b.size());
  expect_distinct(batch_a, contract_a, x.size());
  expect_distinct(batch_b, contract_b, y.size());
  Shape shape;
  for (size_t i = 0; i < batch_a.size(); ++i) {
    const sym::Expr p = x.at(static_cast<size_t>(batch_a[i])), q = y.at(static_cast<size_t>(batch_b[i]));
    expect_equal(b, p, q, "matmul: batch dims {0} and {1} differ");
    shape.push_back(p);
  }
  for (size_t i = 0; i < contract_a.size(); ++i)
    expect_equal(
        b, x.at(static_cast<size_t>(contract_a[i])), y.at(static_cast<size_t>(contract_b[i])),
        cat("matmul: ", to_string(x), " and ", to_string(y), " do not multiply: {0} and {1} differ"));
  for (int64_t d : free_dims(static_cast<int>(x.size()), batch_a, contract_a))
    shape.push_back(x[static_cast<size_t>(d)]);
  for (int64_t d : free_dims(static_cast<int>(y.size()), batch_b, contract_b))
    shape.push_back(y[static_cast<size_t>(d)]);
  return {{{result_dtype(node, b.dtype(node.inputs[0])), std::move(shape)}}, {}};
}

void dot_lower(Lowering& l, const Node& node) {
  const loop::View x = l.view(node.inputs[0]), y = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  const auto &batch_a = node.attributes.integers("batch_a"), &batch_b = node.attributes.integers("batch_b");
  const auto &contract_a = node.attributes.integers("contract_a"),
             &contract_b = node.attributes.integers("contract_b");
  const DType wide = accumulator(node, x.dtype);
  loop::NestBuilder n = l.nest("matmul");
  std::vector<sym::Expr> at, at_x(x.shape.size()), at_y(y.shape.size());
  for (size_t i = 0; i < batch_a.size(); ++i) {
    at.push_back(dim_unless_one(n, to.shape[at.size()], "b"));
    at_x[static_cast<size_t>(batch_a[i])] = at_y[static_cast<size_t>(batch_b[i])] = at.back();
  }
  for (int64_t d : free_dims(static_cast<int>(x.shape.size()), batch_a, contract_a)) {
    at.push_back(dim_unless_one(n, to.shape[at.size()], "m"));
    at_x[static_cast<size_t>(d)] = at.back();
  }
  for (int64_t d : free_dims(static_cast<int>(y.shape.size()), batch_b, contract_b)) {
    at.push_back(dim_unless_one(n, to.shape[at.size()], "n"));
    at_y[static_cast<size_t>(d)] = at.back();
  }
  std::vector<sym::Expr> extents;
  for (int64_t d : contract_a) extents.push_back(x.shape[static_cast<size_t>(d)]);
  const auto product = [&](const std::vector<sym::Expr>& k) {
    for (size_t i = 0; i < k.size(); ++i)
      at_x[static_cast<size_t>(contract_a[i])] = at_y[static_cast<size_t>(contract_b[i])] = k[i];
    return n.cast(n.load(x, at_x), wide) * n.cast(n.load(y, at_y), wide);
  };
  const loop::Value sum = reduce_products(n, extents, product, node.attributes.integer_or("byte_blocks", 0));
  n.store(to, at, n.cast(sum, to.dtype));
  n.finish(&l.steps());
}

struct Side {  // one operand of a dot_general
  ValueId id;
  const std::vector<int64_t>&batch, &contract;
};

// The gradient of `wanted`: the result's gradient times the other operand, contracted over the other's free
// dims. `first_free`: position of the other's free dims in the result.
ValueId dot_gradient_of(Builder& b, const Side& wanted, const Side& other, ValueId g, int64_t first_free) {
  const int rank = b.rank(wanted.id), other_rank = b.rank(other.id);
  const int64_t batch = static_cast<int64_t>(wanted.batch.size());
  const auto other_free = free_dims(other_rank, other.batch, other.contract);
  DotDims dims;
  for (int64_t i = 0; i < batch; ++i) dims.batch_a.push_back(i);
  dims.batch_b = other.batch;
  for (size_t i = 0; i < other_free.size(); ++i)
    dims.contract_a.push_back(first_free + static_cast<int64_t>(i));
  dims.contract_b = other_free;
  const ValueId product = dot_general(b, g, other.id, dims);
  // Dims of the gradient: batch, free dims of `wanted`, contracted dims in the other's order.
  std::vector<int64_t> order(static_cast<size_t>(rank));
  for (size_t i = 0; i < wanted.batch.size(); ++i)
    order[static_cast<size_t>(wanted.batch[i])] = static_cast<int64_t>(i);
  int64_t at = batch;
  for (int64_t d : free_dims(rank, wanted.batch, wanted.contract)) order[static_cast<size_t>(d)] = at++;
  std::vector<size_t> contracted(wanted.contract.size());
  for (size_t i = 0; i < contracted.size(); ++i) contracted[i] = i;
  std::sort(contracted.begin(), contracted.end(),
            [&](size_t p, size_t q) { return other.contract[p] < other.contract[q]; });
  for (size_t i : contracted) order[static_cast<size_t>(wanted.contract[i])] = at++;
  return permute(b, product, order);
}

Ids dot_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const auto &batch_a = node.attributes.integers("batch_a"), &batch_b = node.attributes.integers("batch_b"),
             &contract_a = node.attributes.integers("contract_a"),
             &contract_b = node.attributes.integers("contract_b");
  const Side x{node.inputs[0], batch_a, contract_a}, y{node.inputs[1], batch_b, contract_b};
  const ValueId g = cast(b, outputs[0], b.dtype(x.id));
  const int64_t batch = static_cast<int64_t>(batch_a.size()),
                free_a = b.rank(x.id) - batch - static_cast<int64_t>(contract_a.size());
  return {dot_gradient_of(b, x, y, g, batch + free_a), dot_gradient_of(b, y, x, g, batch)};
}

// ---- convolution -----------------------------------------------------------------------------------------

struct Windows {
  std::vector<int64_t> strides, dilations;
  std::vector<sym::Expr> before, after;
  int64_t groups;
};

Windows windows(const Node& node, size_t spatial) {
  Windows w{.strides = node.attributes.integers("strides"),
            .dilations = node.attributes.integers("dilations"),
            .before = node.attributes.exprs("before"),
            .after = node.attributes.exprs("after"),
            .groups = node.attributes.integer_or("groups", 1)};
  if (w.strides.size() != spatial || w.dilations.size() != spatial || w.before.size() != spatial ||
      w.after.size() != spatial)
    does_not_fit(cat(graph::name(node.kind), ": strides, dilations and pads are for ", w.strides.size(),
                     " spatial dims, the input has ", spatial));
  for (size_t i = 0; i < spatial; ++i)
    if (w.strides[i] < 1 || w.dilations[i] < 1)
      does_not_fit(cat(graph::name(node.kind), ": strides and dilations are at least 1"));
  if (w.groups < 1) does_not_fit(cat(graph::name(node.kind), ": ", w.groups, " groups"));
  return w;
}

size_t spatial_rank(Builder& b, const Node& node) {
  const size_t rank = b.shape(node.inputs[0]).size();
  if (rank < 2 || b.shape(node.inputs[1]).size() != rank)
    does_not_fit(cat(graph::name(node.kind), ": input ", to_string(b.shape(node.inputs[0])), " and weight ",
                     to_string(b.shape(node.inputs[1])), " need one rank of at least 2"));
  return rank - 2;
}

Inferred conv_shape(Builder& b, const Node& node) {
  expect_operands(b, node);
  const size_t spatial = spatial_rank(b, node);
  const Shape &x = b.shape(node.inputs[0]), &w = b.shape(node.inputs[1]);
  const Windows win = windows(node, spatial);
  expect_equal(b, x[1], w[1] * win.groups,
               cat("conv: the input has {0} channels, the weight with ", win.groups, " groups expects {1}"));
  b.require(sym::eq(sym::mod(w[0], win.groups), 0),
            cat("conv: {0} output channels in ", win.groups, " groups"), {w[0]});
  Shape shape{x[0], w[0]};
  for (size_t i = 0; i < spatial; ++i) {
    const sym::Expr padded = x[2 + i] + win.before[i] + win.after[i];
    const sym::Expr window = (w[2 + i] - 1) * win.dilations[i] + 1;
    b.require(sym::ge(padded, window),
              cat("conv: padded spatial dim ", i, " of size {0} is smaller than the window {1}"),
              {padded, window});
    shape.push_back(sym::floordiv(padded - window, win.strides[i]) + 1);
  }
  return {{{result_dtype(node, b.dtype(node.inputs[0])), std::move(shape)}}, {}};
}

// A view of x that reads 0 outside its bounds; copies x if its view cannot be padded.
loop::View zero_outside(Lowering& l, const loop::View& x, const std::vector<sym::Expr>& before,
                        const std::vector<sym::Expr>& after) {
  const loop::Scalar zero = loop::int_scalar(x.dtype, 0);
  if (auto padded = loop::pad(x, before, after, zero)) return *padded;
  return *loop::pad(l.materialise(x, "conv_input"), before, after, zero);
}

void conv_lower(Lowering& l, const Node& node) {
  const loop::View w = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  const size_t spatial = w.shape.size() - 2;
  const Windows win = windows(node, spatial);
  std::vector<sym::Expr> before{0, 0}, after{0, 0};
  before.insert(before.end(), win.before.begin(), win.before.end());
  after.insert(after.end(), win.after.begin(), win.after.end());
  const loop::View x = zero_outside(l, l.view(node.inputs[0]), before, after);
  const DType wide = accumulator(node, x.dtype);
  const sym::Expr per_group_out = sym::floordiv(w.shape[0], win.groups), per_group_in = w.shape[1];

  loop::NestBuilder n = l.nest("conv");
  const sym::Expr batch = dim_unless_one(n, to.shape[0], "n");
  const sym::Expr g = dim_unless_one(n, win.groups, "g");
  const sym::Expr co = g * per_group_out + dim_unless_one(n, per_group_out, "c");
  std::vector<sym::Expr> at{batch, co};
  for (size_t i = 0; i < spatial; ++i) at.push_back(dim_unless_one(n, to.shape[2 + i], "s"));
  std::vector<sym::Expr> extents{per_group_in};
  extents.insert(extents.end(), w.shape.begin() + 2, w.shape.end());
  const loop::Value sum = reduce_products(n, extents, [&](const std::vector<sym::Expr>& k) {
    std::vector<sym::Expr> at_x{batch, g * per_group_in + k[0]}, at_w{co, k[0]};
    for (size_t i = 0; i < spatial; ++i) {
      at_x.push_back(at[2 + i] * win.strides[i] + k[1 + i] * win.dilations[i]);
      at_w.push_back(k[1 + i]);
    }
    return n.cast(n.load(x, at_x), wide) * n.cast(n.load(w, at_w), wide);
  });
  n.store(to, at, n.cast(sum, to.dtype));
  n.finish(&l.steps());
}

// ---- transposed convolution ------------------------------------------------------------------------------

Inferred conv_transpose_shape(Builder& b, const Node& node) {
  expect_operands(b, node);
  const size_t spatial = spatial_rank(b, node);
  const Shape &x = b.shape(node.inputs[0]), &w = b.shape(node.inputs[1]);
  const Windows win = windows(node, spatial);
  expect_equal(b, x[1], w[0], "conv_transpose: the input has {0} channels, the weight expects {1}");
  b.require(sym::eq(sym::mod(w[0], win.groups), 0),
            cat("conv_transpose: {0} input channels in ", win.groups, " groups"), {w[0]});
  const auto extra = node.attributes.exprs("output_extra");
  STRIDEC_CHECK(extra.size() == spatial);
  Shape shape{x[0], w[1] * win.groups};
  for (size_t i = 0; i < spatial; ++i) {
    const sym::Expr size = (x[2 + i] - 1) * win.strides[i] + (w[2 + i] - 1) * win.dilations[i] + 1 +
                           extra[i] - win.before[i] - win.after[i];
    b.require(sym::ge(size, 0), cat("conv_transpose: spatial dim ", i, " would have {0} elements"), {size});
    shape.push_back(size);
  }
  return {{{result_dtype(node, b.dtype(node.inputs[0])), std::move(shape)}}, {}};
}

// Each output element gathers the inputs that contribute to it: o + before = i * stride + k * dilation.
void conv_transpose_lower(Lowering& l, const Node& node) {
  const loop::View w = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  const size_t spatial = w.shape.size() - 2;
  const Windows win = windows(node, spatial);
  loop::View x = l.view(node.inputs[0]);
  const loop::Scalar zero = loop::int_scalar(x.dtype, 0);
  if (!x.mask.is_const(1) && !(x.fill == zero)) x = l.materialise(x, "conv_input");
  const DType wide = accumulator(node, x.dtype);
  const sym::Expr per_group_in = sym::floordiv(w.shape[0], win.groups), per_group_out = w.shape[1];

  loop::NestBuilder n = l.nest("conv_transpose");
  const sym::Expr batch = dim_unless_one(n, to.shape[0], "n");
  const sym::Expr g = dim_unless_one(n, win.groups, "g");
  const sym::Expr co = dim_unless_one(n, per_group_out, "c");
  std::vector<sym::Expr> at{batch, g * per_group_out + co};
  for (size_t i = 0; i < spatial; ++i) at.push_back(dim_unless_one(n, to.shape[2 + i], "s"));
  std::vector<sym::Expr> extents{per_group_in};
  extents.insert(extents.end(), w.shape.begin() + 2, w.shape.end());
  const loop::Value sum = reduce_products(n, extents, [&](const std::vector<sym::Expr>& k) {
    const sym::Expr ci = g * per_group_in + k[0];
    std::vector<sym::Expr> at_x{batch, ci}, at_w{ci, co};
    sym::Expr inside = 1;
    for (size_t i = 0; i < spatial; ++i) {
      const sym::Expr reach = at[2 + i] + win.before[i] - k[1 + i] * win.dilations[i];
      const sym::Expr source = sym::floordiv(reach, win.strides[i]);
      inside = sym::logical_and(inside, sym::eq(sym::mod(reach, win.strides[i]), 0));
      inside =
          sym::logical_and(inside, sym::logical_and(sym::ge(source, 0), sym::lt(source, x.shape[2 + i])));
      at_x.push_back(source);
      at_w.push_back(k[1 + i]);
    }
    loop::Access element = loop::access(x, at_x);
    element.mask = sym::logical_and(element.mask, inside);
    return n.cast(n.load(element, zero), wide) * n.cast(n.load(w, at_w), wide);
  });
  n.store(to, at, n.cast(sum, to.dtype));
  n.finish(&l.steps());
}

// ---- gradients of both -----------------------------------------------------------------------------------

graph::Attributes window_attributes(const Windows& w) {
  return {{"strides", w.strides},
          {"dilations", w.dilations},
          {"before", w.before},
          {"after", w.after},
          {"groups", w.groups}};
}

// The windows with the end of the larger side cropped to what they reach. Where the stride does not divide, a
// convolution would otherwise compute positions that are dropped: 4 for 1 of a 1x1 window of stride 2.
Windows reached(Builder& b, Windows win, const Shape& large, const Shape& small, const Shape& weight) {
  for (size_t i = 0; i < win.strides.size(); ++i) {
    const sym::Expr reach = (small[2 + i] - 1) * win.strides[i] + (weight[2 + i] - 1) * win.dilations[i] + 1;
    win.after[i] = b.simplify(reach - large[2 + i] - win.before[i]);
  }
  return win;
}

// The weight's gradient, from the larger side (conv's input, the transpose's output) and the smaller one: a
// convolution of the two with the batch as the channel dim, and strides and dilations exchanged.
// [n, groups*ci, large...], [n, groups*co, small...] -> [groups*co, ci, window...]
Term weight_gradient(Term large, Term small, const Windows& win, const Shape& weight) {
  Builder& b = large.builder();
  const int64_t spatial = large.rank() - 2;
  const sym::Expr n = large.dim(0), ci = weight[1];
  const auto spatial_of = [&](Term t) { return Shape(t.shape().begin() + 2, t.shape().end()); };
  const auto joined = [](Shape head, const Shape& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  Dims group_first{2, 1, 0}, swap{1, 0};
  for (int64_t d = 0; d < spatial; ++d) group_first.push_back(3 + d), swap.push_back(2 + d);
  const Shape sizes = spatial_of(large);
  const Term x = reshape(permute(reshape(large, joined({n, win.groups, ci}, sizes)), group_first),
                         joined({ci, n * win.groups}, sizes));
  Windows turned = reached(b, win, large.shape(), small.shape(), weight);
  std::swap(turned.strides, turned.dilations);
  Term out(b, b.add1(OpKind::kConv, {x, permute(small, swap)}, window_attributes(turned)));
  for (int64_t d = 0; d < spatial; ++d) out = slice(out, 2 + d, 0, weight[static_cast<size_t>(2 + d)]);
  return permute(out, swap);
}

Ids conv_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term x(b, node.inputs[0]), w(b, node.inputs[1]), g = cast(Term(b, outputs[0]), x.dtype(), false);
  const Windows win = windows(node, static_cast<size_t>(x.rank()) - 2);
  graph::Attributes attributes = window_attributes(win);
  std::vector<sym::Expr> extra;
  for (size_t i = 0; i < win.strides.size(); ++i) {
    const int64_t d = static_cast<int64_t>(i) + 2;
    extra.push_back(b.simplify(x.dim(d) + win.before[i] + win.after[i] - (g.dim(d) - 1) * win.strides[i] -
                               (w.dim(d) - 1) * win.dilations[i] - 1));
  }
  attributes.set("output_extra", extra);
  return {b.add1(OpKind::kConvTranspose, {g, w}, std::move(attributes)),
          weight_gradient(x, g, win, w.shape())};
}

Ids conv_transpose_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term x(b, node.inputs[0]), w(b, node.inputs[1]);
  Term g = cast(Term(b, outputs[0]), x.dtype(), false);
  const Windows win = windows(node, static_cast<size_t>(x.rank()) - 2);
  const Term to_weight = weight_gradient(g, x, win, w.shape());
  const Windows cropped = reached(b, win, g.shape(), x.shape(), w.shape());
  Term to_x(b, b.add1(OpKind::kConv, {g, w}, window_attributes(cropped)));
  for (int64_t d = 2; d < x.rank(); ++d) to_x = slice(to_x, d, 0, x.dim(d));
  return {to_x, to_weight};
}

}  // namespace

const OpDef def_kDotGeneral{
    dot_shape, dot_lower,
    Gradient::by(dot_gradient, "a: dot_general(g, b) over b's free dims; b: dot_general(g, a) over a's")};
const OpDef def_kConv{
    conv_shape, conv_lower,
    Gradient::by(conv_gradient,
                 "x: conv_transpose(g, w); w: conv(x, g) over the batch, stride and dilation swapped")};
const OpDef def_kConvTranspose{
    conv_transpose_shape, conv_transpose_lower,
    Gradient::by(conv_transpose_gradient,
                 "x: conv(g, w); w: conv(g, x) over the batch, stride and dilation swapped")};

}  // namespace stridec::ops
