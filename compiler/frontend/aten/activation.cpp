// Activations.
#include <cmath>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Computes in f32 or wider and rounds once.
template <class F>
Results in_f32(Term x, F&& formula) {
  return {cast(formula(widen(x)), x.dtype(), false)};
}

Results op_relu(Context& c) {
  const Term x = c.in("self");
  return {is_bool(x.dtype()) ? x : relu(x)};
}
Results relu6(Context& c) { return {minimum(maximum(c.in("self"), 0, Ties::kSecond), 6, Ties::kSecond)}; }
Results op_gelu(Context& c) {
  return {gelu(c.in("self"), c.text("approximate") == "tanh", AtMinusInfinity::kNan)};
}
Results op_silu(Context& c) { return {silu(c.in("self"), 1, AtMinusInfinity::kNan)}; }
Results mish(Context& c) {
  return in_f32(c.in("self"), [](Term x) { return x * tanh(softplus(x)); });
}
Results op_softplus(Context& c) {
  const double beta = c.number("beta"), threshold = c.number("threshold");
  return in_f32(c.in("self"), [&](Term x) {
    const Term scaled = x * beta;
    return select(greater(scaled, threshold), x, softplus(scaled) / beta);
  });
}
Results leaky_relu(Context& c) {
  const double slope = c.number("negative_slope");
  return in_f32(c.in("self"), [&](Term x) { return select(greater(x, 0), x, x * slope); });
}
Results elu(Context& c) {
  const double alpha = c.number("alpha"), scale = c.number("scale"), input = c.number("input_scale");
  return in_f32(c.in("self"), [&](Term x) {
    return select(greater(x, 0), x * scale, apply(OpKind::kExpm1, x * input) * (alpha * scale));
  });
}
Results selu(Context& c) {
  constexpr double kAlpha = 1.6732632423543772848170429916717, kScale = 1.0507009873554804934193349852946;
  return in_f32(c.in("self"), [&](Term x) {
    return select(greater(x, 0), x * kScale, apply(OpKind::kExpm1, x) * (kAlpha * kScale));
  });
}
Results celu(Context& c) {
  const double alpha = c.number("alpha");
  return in_f32(c.in("self"), [&](Term x) {
    return select(greater(x, 0), x, apply(OpKind::kExpm1, x * (1 / alpha)) * alpha);
  });
}
Results hardtanh(Context& c) {
  return {
      minimum(maximum(c.in("self"), c.number("min_val"), Ties::kSecond), c.number("max_val"), Ties::kSecond)};
}
Results hardsigmoid(Context& c) {
  return in_f32(c.in("self"), [](Term x) {
    return minimum(maximum(x + 3.0, 0, Ties::kSecond), 6, Ties::kSecond) * (1.0 / 6);
  });
}
Results hardswish(Context& c) {
  return in_f32(c.in("self"), [](Term x) {
    return x * minimum(maximum(x + 3.0, 0, Ties::kSecond), 6, Ties::kSecond) * (1.0 / 6);
  });
}
Results hardshrink(Context& c) {
  const double l = c.number("lambd");
  const Term x = c.in("self");
  return {select(logical_and(greater_equal(x, -l), less_equal(x, l)), 0, x)};
}
Results softshrink(Context& c) {
  const double l = c.number("lambd");
  const Term x = c.in("self");
  return {select(greater(x, l), x - l, select(less(x, -l), x + l, x * 0.0))};
}
Results threshold(Context& c) {
  const Term x = c.in("self");
  return {select(less_equal(x, c.number("threshold")), c.scalar("value", x.dtype()), x)};
}
Results log_sigmoid(Context& c) {
  Results out =
      in_f32(c.in("self"), [](Term x) { return minimum(x, 0) - apply(OpKind::kLog1p, exp(-abs(x))); });
  return out;
}
Results softsign(Context& c) {
  return in_f32(c.in("self"), [](Term x) { return x / (abs(x) + 1.0); });
}
Results prelu(Context& c) {
  const Term x = c.in("self");
  Term w = c.in("weight");
  if (w.rank() == 1 && x.rank() > 1) {  // one slope for each channel, or one for all
    Shape shape(static_cast<size_t>(x.rank()) - 1, 1);
    shape[0] = w.dim(0);
    w = reshape(w, shape);
  }
  return {select(greater(x, 0), x, x * w)};
}
Results glu(Context& c) {
  const Term x = c.in("self");
  const int64_t dim = c.dim("dim", x.rank());
  c.b.require(sym::eq(sym::mod(x.dim(dim), 2), 0), "glu halves a dim of size {0}, which is odd",
              {x.dim(dim)});
  const sym::Expr half = c.b.simplify(sym::floordiv(x.dim(dim), 2));
  return {slice(x, dim, 0, half) * sigmoid(slice(x, dim, half, half))};
}

Term softmax_operand(Context& c) {
  Term x = c.in("self");
  if (const auto to = c.dtype("dtype")) x = cast(x, *to, false);
  if (!is_float(x.dtype())) x = cast(x, DType::kF32, false);
  if (c.names("half_to_float") && c.flag("half_to_float")) x = cast(x, DType::kF32, false);
  return x;
}
Results op_softmax(Context& c) {
  const Term x = softmax_operand(c);
  if (x.rank() == 0) return {filled(c.b, {}, x.dtype(), 1)};
  return {softmax(x, {c.dim("dim", x.rank())})};
}
// A row of -infinity gives zeros, and has no gradient.
Results safe_softmax(Context& c) {
  const Term x = softmax_operand(c);
  const int64_t dim = c.dim("dim", x.rank());
  const Term top = stop_gradient(reduce_max(x, {dim}, kKeep));
  const Term masked = expand(logical_and(apply(OpKind::kIsInf, top), less(top, 0)), x.shape());
  return {select(masked, 0, softmax(select(masked, 0, x), {dim}))};
}
Results op_log_softmax(Context& c) {
  Term x = c.in("self");
  if (const auto to = c.dtype("dtype")) x = cast(x, *to, false);
  if (!is_float(x.dtype())) x = cast(x, DType::kF32, false);
  if (c.names("half_to_float") && c.flag("half_to_float")) x = cast(x, DType::kF32, false);
  if (x.rank() == 0) return {filled(c.b, {}, x.dtype(), 0)};
  return {log_softmax(x, {c.dim("dim", x.rank())})};
}

// The gradient of the argument of a softmax or log-softmax whose result is `output`.
template <bool logarithm>
Results softmax_backward(Context& c) {
  const Term g = widen(c.in("grad_output")), y = widen(c.in("output"));
  const Dims dims = g.rank() == 0 ? Dims{} : Dims{c.dim("dim", g.rank())};
  const auto sum = [&](Term t) { return g.rank() == 0 ? t : reduce_sum(t, dims, kKeep); };
  const Term out = logarithm ? g - exp(y) * sum(g) : (g - sum(g * y)) * y;
  return {cast(out, c.dtype("input_dtype").value_or(g.dtype()), false)};
}

constexpr Row kRows[] = {
    {"_log_softmax", op_log_softmax},
    {"_log_softmax_backward_data", softmax_backward<true>},
    {"_prelu_kernel", prelu},
    {"_safe_softmax", safe_softmax},
    {"_softmax", op_softmax},
    {"_softmax_backward_data", softmax_backward<false>},
    {"celu", celu},
    {"elu", elu},
    {"gelu", op_gelu},
    {"glu", glu},
    {"hardshrink", hardshrink},
    {"hardsigmoid", hardsigmoid},
    {"hardswish", hardswish},
    {"hardtanh", hardtanh},
    {"leaky_relu", leaky_relu},
    {"log_sigmoid", log_sigmoid},
    {"log_softmax", op_log_softmax},
    {"mish", mish},
    {"prelu", prelu},
    {"relu", op_relu},
    {"relu6", relu6},
    {"selu", selu},
    {"silu", op_silu},
    {"softmax", op_softmax},
    {"softplus", op_softplus},
    {"softshrink", softshrink},
    {"softsign", softsign},
    {"special_log_softmax", op_log_softmax},
    {"special_softmax", op_softmax},
    {"threshold", threshold},
};

}  // namespace

std::span<const Row> activation_rows() { return kRows; }

}  // namespace stridec::aten
