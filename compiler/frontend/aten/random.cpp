// Random draws. Every draw is a stream of its own of a counter-based generator, which advance_generator()
// makes differ from run to run. The distributions are PyTorch's, the numbers are not; those with
// -O fallback_random are of torch_random.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/frontend/aten/torch_random.h"
#include "compiler/ops/composite/random.h"
#include "compiler/ops/composite/torch_random.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// A draw uses up to two streams.
int64_t fresh_seed(Builder& b) { return 2 * static_cast<int64_t>(b.graph().nodes.size()); }

Term uniforms(Context& c, const Shape& shape) {
  return random_uniform(c.b, shape, DType::kF32, fresh_seed(c.b));
}
Results rand(Context& c) {
  const Drawn d = drawn(c);
  const double low = given(c, "from", 0), high = given(c, "to", 1);
  return {uniform(c.b, d.shape, low, high, d.dtype, fresh_seed(c.b))};
}
Results randn(Context& c) {
  const Drawn d = drawn(c);
  return {normal(c.b, d.shape, given(c, "mean", 0), given(c, "std", 1), d.dtype, fresh_seed(c.b))};
}
// The mean and the deviation are tensors or numbers.
Results normal_of(Context& c) {
  if (c.names("self")) return randn(c);
  refuse_generator(c);
  const Term mean = as_term(c.b, c.arg("mean")), deviation = as_term(c.b, c.arg("std"));
  const DType to = c.arg("mean").is_tensor() ? mean.dtype() : deviation.dtype();
  const Shape shape = c.names("size") ? c.sizes("size") : (widen(mean) + widen(deviation)).shape();
  const Term z = normal(c.b, shape, 0, 1, DType::kF32, fresh_seed(c.b));
  return {cast(z * cast(deviation, DType::kF32, false) + cast(mean, DType::kF32, false), to, false)};
}

Term whole_numbers(Context& c, const Shape& shape, sym::Expr low, sym::Expr high) {
  c.b.require(sym::lt(low, high), "random numbers from {0} to {1}: the range is empty", {low, high});
  // 53 random bits, so that ranges beyond 2^24 have all their numbers.
  const Term u = random_uniform(c.b, shape, DType::kF64, fresh_seed(c.b));
  const Term count = cast(size_as(c.b, DType::kI64, high - low), DType::kF64, false);
  return cast(apply(OpKind::kFloor, u * count), DType::kI64, false) + size_as(c.b, DType::kI64, low);
}
Results randint(Context& c) {
  Drawn d = drawn(c);
  if (!c.names("self") && !c.has("dtype")) d.dtype = DType::kI64;
  const sym::Expr low = c.names("low") ? c.size("low") : sym::Expr(0);
  return {cast(whole_numbers(c, d.shape, low, c.size("high")), d.dtype, false)};
}
Results random_whole(Context& c) {
  const Drawn d = drawn(c);
  sym::Expr low = 0,
            high = is_float(d.dtype) ? int64_t{1} << (d.dtype == DType::kF64 ? 53 : 24) : int64_t{1} << 31;
  if (d.dtype == DType::kF16) high = 1 << 11;
  if (d.dtype == DType::kBF16) high = 1 << 8;
  if (is_bool(d.dtype)) high = 2;
  if (is_integer(d.dtype) && byte_size(d.dtype) < 4)
    high = int64_t{1} << (8 * byte_size(d.dtype) - (d.dtype == DType::kU8 ? 0 : 1));
  if (c.names("from")) low = c.size("from");
  if (c.has("to")) high = c.size("to");
  return {cast(whole_numbers(c, d.shape, low, high), d.dtype, false)};
}
Results randperm(Context& c) {
  refuse_generator(c);
  const DType to = c.dtype("dtype").value_or(DType::kI64);
  const Term keys = random_uniform(c.b, {c.b.simplify(c.size("n"))}, DType::kF64, fresh_seed(c.b));
  return {cast(sort(keys, 0).indices, to, false)};
}

Results bernoulli_row(Context& c) {
  const Drawn d = drawn(c);
  if (!c.names("p")) return {bernoulli(c.in("self"), d.dtype, fresh_seed(c.b))};
  const Term p = cast(as_term(c.b, c.arg("p")), DType::kF32, false);
  return {cast(less(uniforms(c, d.shape), p), d.dtype, false)};
}
Results exponential(Context& c) {
  const Drawn d = drawn(c);
  const Term u = uniforms(c, d.shape);
  return {cast(log(subtract_from(1, u)) * (-1 / given(c, "lambd", 1)), d.dtype, false)};
}
Results geometric(Context& c) {
  const Drawn d = drawn(c);
  const Term u = subtract_from(1, uniforms(c, d.shape));
  return {cast(apply(OpKind::kCeil, log(u) / std::log1p(-c.number("p"))), d.dtype, false)};
}
Results cauchy(Context& c) {
  const Drawn d = drawn(c);
  const Term u = uniforms(c, d.shape);
  const Term x = apply(OpKind::kTan, (u - 0.5) * M_PI) * given(c, "sigma", 1) + given(c, "median", 0);
  return {cast(x, d.dtype, false)};
}

// Samples without replacement are the largest of log(p) plus Gumbel noise.
Results multinomial_row(Context& c) {
  refuse_generator(c);
  const Term x = c.in("self"), p = widen(x);
  const Term rows = x.rank() == 1 ? unsqueeze(p, {0}) : p;
  const sym::Expr samples = c.b.simplify(c.size("num_samples"));
  const Term logs = log(rows);
  Term out = logs;
  if (c.flag("replacement") || samples.is_const(1)) {
    if (!samples.is_const()) c.unsupported("multinomial of a number of samples that the run decides");
    out = multinomial(logs, samples.value(), DType::kI64, fresh_seed(c.b));
  } else {
    const Term u = subtract_from(1, uniforms(c, rows.shape()));
    out = top_k(logs - log(-log(u)), 1, samples).indices;
  }
  return {x.rank() == 1 ? squeeze(out, {0}) : out};
}

Term kept_mask(Context& c, Term x, double p, bool whole_channels) {
  Shape shape = x.shape();
  if (whole_channels)
    for (size_t d = 2; d < shape.size(); ++d) shape[d] = 1;
  return greater_equal(uniforms(c, shape), p);
}
template <bool whole_channels>
Results dropout_row(Context& c) {
  if (auto result = undrawn_dropout(c)) return *std::move(result);
  const double p = c.number("p");
  const Term x = c.in(input_of(c)), w = widen(x);
  const Term kept = kept_mask(c, x, p, whole_channels);
  return dropped(c, select(expand(kept, x.shape()), w * (1 / (1 - p)), 0));
}
// Dropped elements have the value that SELU saturates at, and an affine map keeps mean and variance.
template <bool whole_channels>
Results alpha_dropout(Context& c) {
  if (auto result = undrawn_dropout(c)) return *std::move(result);
  const double p = c.number("p");
  const Term x = c.in(input_of(c)), w = widen(x);
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Term kept = expand(kept_mask(c, x, p, whole_channels), x.shape());
  return dropped(c, select(kept, w, number_like(w, -kAlpha)) * a + kAlpha * a * p);
}
Results native_dropout(Context& c) { return native_dropout_by(c, kept_mask); }
Results native_dropout_backward(Context& c) {
  const Term g = c.in("grad_output");
  const DType to = float_type(g.dtype());
  return {cast(select(c.in("mask"), widen(cast(g, to, false)) * c.number("scale"), 0), to, false)};
}
// rrelu_with_noise_functional has the slopes as a second result, 1 where x is positive.
Results rrelu(Context& c) {
  const Term x = c.in("self"), w = widen(x);
  const double low = c.number("lower"), high = c.number("upper");
  const bool with_noise = c.names("noise");
  if (!c.flag("training")) {
    const Term y = cast(select(less(w, 0), w * ((low + high) / 2), w), x.dtype(), false);
    return with_noise ? Results{y, c.in("noise")} : Results{y};
  }
  refuse_generator(c);
  if (has_torch_generator(c.b.graph()))
    c.unsupported(
        "rrelu in training, which draws as many numbers as its input has negative elements, with "
        "-O fallback_random");
  const Term slope = select(less_equal(w, 0), uniforms(c, x.shape()) * (high - low) + low, 1.0);
  const Term y = cast(w * slope, x.dtype(), false);
  return with_noise ? Results{y, cast(slope, c.in("noise").dtype(), false)} : Results{y};
}

Results log_normal(Context& c) {
  const Drawn d = drawn(c);
  const Term x = normal(c.b, d.shape, given(c, "mean", 1), given(c, "std", 2), DType::kF32, fresh_seed(c.b));
  return {cast(exp(x), d.dtype, false)};
}

// The generator of the graph decides.
template <ImportFn own, ImportFn torch>
Results either(Context& c) {
  return has_torch_generator(c.b.graph()) ? torch(c) : own(c);
}

constexpr Row kRows[] = {
    {"alpha_dropout", either<alpha_dropout<false>, torch_alpha_dropout<false>>, Numbers::kComplex},
    {"alpha_dropout_", either<alpha_dropout<false>, torch_alpha_dropout<false>>, Numbers::kComplex},
    {"bernoulli", either<bernoulli_row, torch_bernoulli>},
    {"cauchy", either<cauchy, torch_cauchy>},
    {"dropout", either<dropout_row<false>, torch_dropout<false>>, Numbers::kComplex},
    {"dropout_", either<dropout_row<false>, torch_dropout<false>>, Numbers::kComplex},
    {"exponential", either<exponential, torch_exponential>},
    {"feature_alpha_dropout", either<alpha_dropout<true>, torch_alpha_dropout<true>>, Numbers::kComplex},
    {"feature_alpha_dropout_", either<alpha_dropout<true>, torch_alpha_dropout<true>>, Numbers::kComplex},
    {"feature_dropout", either<dropout_row<true>, torch_dropout<true>>, Numbers::kComplex},
    {"feature_dropout_", either<dropout_row<true>, torch_dropout<true>>, Numbers::kComplex},
    {"geometric", either<geometric, torch_geometric>},
    {"log_normal", either<log_normal, torch_log_normal>},
    {"multinomial", either<multinomial_row, torch_multinomial>},
    {"native_dropout", either<native_dropout, torch_native_dropout>},
    {"native_dropout_backward", native_dropout_backward},
    {"normal", either<normal_of, torch_normal_of>},
    {"normal_functional", either<randn, torch_randn>},
    {"rand", either<rand, torch_rand>},
    {"rand_like", either<rand, torch_rand>},
    {"randint", either<randint, torch_randint>},
    {"randint_like", either<randint, torch_randint>},
    {"randn", either<randn, torch_randn>},
    {"randn_like", either<randn, torch_randn>},
    {"random", either<random_whole, torch_random_whole>},
    {"randperm", either<randperm, torch_randperm>},
    {"rrelu", rrelu},
    {"rrelu_with_noise_functional", rrelu},
    {"uniform", either<rand, torch_rand>},
};

}  // namespace

std::span<const Row> random_rows() { return kRows; }

bool may_draw(const Schema& schema) {
  const Row* row = find_row(schema);
  return std::ranges::any_of(kRows, [&](const Row& each) { return &each == row; });
}

void refuse_generator(const Context& c) {
  if (c.has("generator")) c.unsupported("a generator of random numbers as an argument");
}

Drawn drawn(const Context& c) {
  refuse_generator(c);
  const bool like = c.names("self") && c.arg("self").is_tensor();
  Drawn out{.shape = {}, .dtype = like ? c.in("self").dtype() : DType::kF32};
  if (c.names("dtype")) out.dtype = c.dtype("dtype").value_or(out.dtype);
  out.shape = c.names("size") ? c.sizes("size") : c.in("self").shape();
  for (sym::Expr& dim : out.shape) dim = c.b.simplify(dim);
  return out;
}

double given(const Context& c, const char* name, double otherwise) {
  return c.names(name) ? c.number(name) : otherwise;
}

const char* input_of(const Context& c) { return c.names("input") ? "input" : "self"; }

Results dropped(Context& c, Term value) {
  const Term x = cast(value, c.in(input_of(c)).dtype(), false);
  if (!c.schema.name.ends_with("_")) return {x};
  write(c.b, c.tensor("self"), x);
  return {c.tensor("self")};
}

std::optional<Results> undrawn_dropout(Context& c) {
  const double p = c.number("p");
  if (!c.flag("train") || p == 0) return Results{c.tensor(input_of(c))};
  const Term x = c.in(input_of(c));
  if (p == 1) return dropped(c, filled(c.b, x.shape(), x.dtype(), 0));
  return std::nullopt;
}

Results native_dropout_by(Context& c, KeptMask kept_mask) {
  const Term x = c.in("input"), w = widen(x);
  const double p = c.number("p");
  const bool training = !c.has("train") || c.flag("train");
  if (!training || p == 0) return {x, filled(c.b, x.shape(), DType::kBool, 1)};
  if (p == 1) return {filled(c.b, x.shape(), x.dtype(), 0), filled(c.b, x.shape(), DType::kBool, 0)};
  const Term kept = kept_mask(c, x, p, false);
  return {cast(select(kept, w * (1 / (1 - p)), 0), x.dtype(), false), kept};
}

void keep_generator(Builder& b) {
  if (has_torch_generator(b.graph())) return finish_torch_generator(b);
  if (const graph::Node* loop = loop_with_draws(b.graph()))
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("a loop draws random numbers, and would draw the same ones in each iteration: ", loop->origin),
         "draw them before the loop and index them in it");
  advance_generator(b);
}

}  // namespace stridec::aten
