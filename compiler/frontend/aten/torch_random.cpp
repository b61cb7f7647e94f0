#include "compiler/frontend/aten/torch_random.h"

#include <cmath>
#include <functional>

#include "compiler/ops/composite/torch_random.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// PyTorch's kernels compute in f64, and round to a narrow type by f32.
Term rounded(Term x, DType to) {
  const bool narrow = is_float(to) && byte_size(to) < 4;
  return cast(narrow ? cast(x, DType::kF32, false) : x, to, false);
}

using DrawFn = std::function<Term(const Shape& shape, bool dense)>;
// Draws a tensor in the order in which its elements lie in memory.
Term in_memory_order(Context& c, const Tensor& tensor, const Shape& shape, const DrawFn& draw) {
  const auto order = memory_order(c.b, tensor);
  if (!order)
    c.unsupported("a random draw into a tensor whose elements are apart in memory, with -O fallback_random");
  Shape stored;
  Dims back(order->size());
  bool dense = true;
  for (size_t d = 0; d < order->size(); ++d) {
    const int64_t dim = (*order)[d];
    stored.push_back(shape[static_cast<size_t>(dim)]);
    back[static_cast<size_t>(dim)] = static_cast<int64_t>(d);
    dense = dense && dim == static_cast<int64_t>(d);
  }
  const Term drawn = draw(stored, dense);
  return dense ? drawn : permute(drawn, back);
}
// A new tensor, or one like `self`.
Term draw_like(Context& c, const Drawn& d, const DrawFn& draw) {
  if (c.names("self") && c.arg("self").is_tensor())
    return in_memory_order(c, c.tensor("self"), d.shape, draw);
  return draw(d.shape, true);
}

bool on_gpu(const Context& c) { return has_cuda_generator(c.b.graph()); }
// The uniforms from which most distributions are computed: of 53 bits, on GPUs only for f64.
DType uniform_type(const Context& c, DType dtype) {
  return !on_gpu(c) || dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}
Term draw_wide(Context& c, const Drawn& d) {
  const DType dtype = uniform_type(c, d.dtype);
  return draw_like(c, d, [&](const Shape& s, bool) { return torch_uniform(c.b, s, dtype); });
}

// The number after the largest that random_() draws without an end; not of i64.
int64_t end_of(DType dtype) {
  if (is_bool(dtype)) return 2;
  if (dtype == DType::kF16) return (1 << 11) + 1;
  if (dtype == DType::kBF16) return (1 << 8) + 1;
  if (dtype == DType::kF32) return (1 << 24) + 1;
  if (dtype == DType::kF64) return (int64_t{1} << 53) + 1;
  const int bits = 8 * static_cast<int>(byte_size(dtype)) - (dtype == DType::kU8 ? 0 : 1);
  return static_cast<int64_t>(uint64_t{1} << bits);
}

Term kept_mask(Context& c, Term x, double p, bool whole_channels) {
  const auto draw = [&](const Shape& shape, bool) {
    return less(torch_uniform(c.b, shape, uniform_type(c, x.dtype())), 1 - p);
  };
  if (!whole_channels) return in_memory_order(c, c.tensor(input_of(c)), x.shape(), draw);
  Shape shape = x.shape();
  for (size_t d = 2; d < shape.size(); ++d) shape[d] = 1;
  return expand(draw(shape, true), x.shape());
}
// A number as the dtype has it.
Term in_dtype(Term like, double value) { return widen(number(like.builder(), like.dtype(), value)); }
Term round_to(Term x, DType dtype) { return widen(cast(x, dtype, false)); }

// What PyTorch's own kernel of dropout on GPUs keeps: a thread takes as many elements at once as 16 bytes
// have, or fewer, so that their number is a multiple.
Term cuda_kept(Context& c, Term x, double p) {
  return in_memory_order(c, c.tensor(input_of(c)), x.shape(), [&](const Shape& shape, bool) {
    const sym::Expr n = c.b.simplify(count(shape));
    sym::Expr layout = 0;
    for (int64_t run = 2; run <= 16 / byte_size(x.dtype()); run *= 2)
      layout = sym::select(sym::eq(sym::mod(n, run), 0), run, layout);
    const Term u = cast(cuda_uniform(c.b, shape, DType::kF32, c.b.simplify(layout)), widen(x).dtype());
    return less(u, 1 - p);
  });
}
Term cuda_scaled(Term x, Term kept, double p) {
  const Term w = widen(x), scale = divide_into(1, number_like(w, 1 - p));
  return w * select(kept, number_like(w, 1), number_like(w, 0)) * scale;
}

}  // namespace

Results torch_rand(Context& c) {
  const Drawn d = drawn(c);
  const double low = given(c, "from", 0), high = given(c, "to", 1);
  return {draw_like(c, d,
                    [&](const Shape& shape, bool) { return torch_uniform(c.b, shape, d.dtype, low, high); })};
}

Results torch_randn(Context& c) {
  const Drawn d = drawn(c);
  const double mean = given(c, "mean", 0), deviation = given(c, "std", 1);
  return {draw_like(c, d, [&](const Shape& shape, bool dense) {
    return torch_normal(c.b, shape, d.dtype, mean, deviation, dense);
  })};
}

// The mean and the deviation are tensors or numbers.
Results torch_normal_of(Context& c) {
  if (c.names("self") || (!c.arg("mean").is_tensor() && !c.arg("std").is_tensor())) return torch_randn(c);
  refuse_generator(c);
  const Term mean = as_term(c.b, c.arg("mean")), deviation = as_term(c.b, c.arg("std"));
  const DType to = c.arg("mean").is_tensor() ? mean.dtype() : deviation.dtype();
  const Shape shape = (widen(mean) + widen(deviation)).shape();
  if (!c.arg("std").is_tensor()) {
    const Term z = torch_normal(c.b, shape, to, 0, c.number("std"), true);
    return {cast(widen(z) + widen(mean), to, false)};
  }
  const Term z = widen(torch_normal(c.b, shape, to, 0, 1, true));
  return {cast(z * cast(deviation, z.dtype(), false) + cast(mean, z.dtype(), false), to, false)};
}

Results torch_log_normal(Context& c) {
  const Drawn d = drawn(c);
  const double mean = given(c, "mean", 1), deviation = given(c, "std", 2);
  return {draw_like(c, d, [&](const Shape& shape, bool) {
    if (!on_gpu(c)) return rounded(exp(torch_normal_pairs(c.b, shape, mean, deviation)), d.dtype);
    return cast(exp(cuda_normal(c.b, shape, uniform_type(c, d.dtype), mean, deviation)), d.dtype, false);
  })};
}

Results torch_randint(Context& c) {
  Drawn d = drawn(c);
  if (!c.names("self") && !c.has("dtype")) d.dtype = DType::kI64;
  const sym::Expr low = c.names("low") ? c.size("low") : sym::Expr(0), high = c.size("high");
  c.b.require(sym::lt(low, high), "random numbers from {0} to {1}: the range is empty", {low, high});
  return {draw_like(c, d, [&](const Shape& shape, bool) {
    return cast(torch_integers(c.b, shape, low, high), d.dtype, false);
  })};
}

Results torch_random_whole(Context& c) {
  const Drawn d = drawn(c);
  const bool wide = byte_size(d.dtype) == 8;
  if (c.has("to") || c.names("from")) {
    if (!c.has("to") && wide)
      c.unsupported("random_() from a number without an end, with -O fallback_random");
    const sym::Expr low = c.names("from") ? c.size("from") : sym::Expr(0);
    const sym::Expr high = c.has("to") ? c.size("to") : sym::Expr(end_of(d.dtype));
    return {draw_like(c, d, [&](const Shape& shape, bool) {
      return cast(torch_integers(c.b, shape, low, high), d.dtype, false);
    })};
  }
  return {draw_like(c, d, [&](const Shape& shape, bool) {
    const Term words = reshape(torch_words(c.b, count(shape), wide), shape);
    const Term bits = bitcast(words, DType::kU64);
    if (wide && !is_float(d.dtype))  // without the sign
      return bitcast(apply(OpKind::kShr, apply(OpKind::kShl, bits, 1), 1), DType::kI64);
    const Term end = bitcast(size_as(c.b, DType::kI64, end_of(d.dtype)), DType::kU64);
    return cast(bitcast(apply(OpKind::kMod, bits, end), DType::kI64), d.dtype, false);
  })};
}

Results torch_randperm(Context& c) {
  refuse_generator(c);
  return {cast(torch_permutation(c.b, c.size("n")), c.dtype("dtype").value_or(DType::kI64), false)};
}

Results torch_bernoulli(Context& c) {
  const Drawn d = drawn(c);
  if (c.names("p") && !c.arg("p").is_tensor())
    return {cast(less(draw_wide(c, d), c.number("p")), d.dtype, false)};
  const Term p = c.names("p") ? c.in("p") : c.in("self");
  if (on_gpu(c)) {
    // A thread draws a block for four elements.
    const auto draw = [&](const Shape& s, bool) { return cuda_uniform(c.b, s, DType::kF32, -4); };
    const DType compared = uniform_type(c, d.dtype);
    return {
        cast(less_equal(cast(draw_like(c, d, draw), compared), cast(p, compared, false)), d.dtype, false)};
  }
  const DType drawn_as = p.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto draw = [&](const Shape& s, bool) { return torch_uniform(c.b, s, drawn_as); };
  const Term u = c.names("p") ? draw_like(c, d, draw) : draw(d.shape, true);
  return {cast(less(u, cast(p, drawn_as, false)), d.dtype, false)};
}

Results torch_exponential(Context& c) {
  const Drawn d = drawn(c);
  const double rate = given(c, "lambd", 1);
  if (on_gpu(c))
    return {draw_like(c, d, [&](const Shape& s, bool) { return cuda_exponential(c.b, s, d.dtype, rate); })};
  return {rounded(apply(OpKind::kLog1p, -draw_wide(c, d)) * (-1 / rate), d.dtype)};
}

Results torch_geometric(Context& c) {
  const Drawn d = drawn(c);
  const auto draw = [&](const Shape& s, bool) { return cuda_logarithm(c.b, s, uniform_type(c, d.dtype)); };
  const Term logs = on_gpu(c) ? draw_like(c, d, draw) : log(draw_wide(c, d));
  return {rounded(apply(OpKind::kCeil, logs / std::log(1 - c.number("p"))), d.dtype)};
}

Results torch_cauchy(Context& c) {
  const Drawn d = drawn(c);
  Term u = draw_wide(c, d);
  constexpr double kEpsilon = 0x1p-23;
  if (u.dtype() == DType::kF32) u = minimum(maximum(u, kEpsilon), 1 - kEpsilon);
  const Term x = apply(OpKind::kTan, (u - 0.5) * M_PI);
  return {
      rounded(fma(x, number_like(x, given(c, "sigma", 1)), number_like(x, given(c, "median", 0))), d.dtype)};
}

// With replacement by the cumulative shares, without by quotients of exponential numbers.
Results torch_multinomial(Context& c) {
  refuse_generator(c);
  const Term x = c.in("self"), p = x.rank() == 1 ? unsqueeze(x, {0}) : x;
  const sym::Expr samples = c.b.simplify(c.size("num_samples"));
  Term out = p;
  if (c.flag("replacement") && !samples.is_const(1)) {
    if (on_gpu(c)) c.unsupported("multinomial with replacement on a GPU, with -O fallback_random");
    const Term sums = cumulative_sum(p, 1), total = slice(sums, 1, p.dim(1) - 1, 1);
    const Term shares = unsqueeze(cast(slice(sums / total, 1, 0, p.dim(1) - 1), DType::kF64), {1});
    const Term u = unsqueeze(torch_uniform(c.b, {p.dim(0), samples}, DType::kF64), {2});
    out = reduce_sum(cast(less(shares, u), DType::kI64), {2});
  } else {
    const auto exponentials = [&] {
      if (on_gpu(c)) return cuda_exponential(c.b, p.shape(), x.dtype(), 1);
      return rounded(-apply(OpKind::kLog1p, -torch_uniform(c.b, p.shape(), DType::kF64)), x.dtype());
    };
    const Term q = exponentials();
    out = top_k(round_to(widen(p) / widen(q), x.dtype()), 1, samples).indices;
  }
  return {x.rank() == 1 ? squeeze(out, {0}) : out};
}

// The noise is 0 or 1 / (1 - p), rounded to the dtype.
template <bool whole_channels>
Results torch_dropout(Context& c) {
  if (auto result = undrawn_dropout(c)) return *std::move(result);
  const double p = c.number("p");
  const Term x = c.in(input_of(c)), w = widen(x);
  if (on_gpu(c) && c.schema.name == "dropout")
    return {cast(cuda_scaled(x, cuda_kept(c, x, p), p), x.dtype(), false)};
  const Term kept = kept_mask(c, x, p, whole_channels);
  const Term scale = round_to(divide_into(1, number_like(w, 1 - p)), x.dtype());
  return dropped(c, w * select(kept, scale, number_like(w, 0)));
}
template Results torch_dropout<false>(Context& c);
template Results torch_dropout<true>(Context& c);

// Dropped elements have the value that SELU saturates at, and an affine map keeps mean and variance.
template <bool whole_channels>
Results torch_alpha_dropout(Context& c) {
  if (auto result = undrawn_dropout(c)) return *std::move(result);
  const double p = c.number("p");
  const Term x = c.in(input_of(c)), w = widen(x);
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Term kept = kept_mask(c, x, p, whole_channels);
  const Term shift = round_to(number_like(w, -kAlpha * a), x.dtype());
  const Term b = round_to(select(kept, number_like(w, 0), shift) + kAlpha * a * p, x.dtype());
  const Term noise = select(kept, in_dtype(x, a), number_like(w, 0));
  return dropped(c, round_to(w * noise, x.dtype()) + b);
}
template Results torch_alpha_dropout<false>(Context& c);
template Results torch_alpha_dropout<true>(Context& c);

Results torch_native_dropout(Context& c) {
  const double p = c.number("p");
  const bool draws = (!c.has("train") || c.flag("train")) && p > 0 && p < 1;
  if (!on_gpu(c) || !draws) return native_dropout_by(c, kept_mask);
  const Term x = c.in("input"), kept = cuda_kept(c, x, p);
  return {cast(cuda_scaled(x, kept, p), x.dtype(), false), kept};
}

}  // namespace stridec::aten
