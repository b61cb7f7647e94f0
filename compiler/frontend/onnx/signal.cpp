// Fourier transforms as products with matrices, and random numbers.
#include <functional>
#include <numbers>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// cos and sin of 2 pi row column / length, [rows, columns]; the product is reduced as an integer first.
struct Waves {
  Term cosine, sine;
};
Waves waves(Builder& b, sym::Expr rows, sym::Expr columns, sym::Expr length, DType type) {
  const Shape shape{rows, columns};
  const Term product = index_along(b, shape, 0, DType::kI64) * index_along(b, shape, 1, DType::kI64);
  const Term turn = cast(apply(OpKind::kMod, product, size_as(b, DType::kI64, length)), type);
  const Term angle = turn * (2 * std::numbers::pi) / size_as(b, type, length);
  return {apply(OpKind::kCos, angle), apply(OpKind::kSin, angle)};
}

// A signal's last dim says whether its numbers are real (1) or complex (2).
bool is_complex(const Context& c, Term x) {
  const sym::Expr parts = x.dim(x.rank() - 1);
  if (!parts.is_const())
    c.unsupported("whether a signal is real or complex, its last dim, must be known at compile time");
  if (parts.value() != 1 && parts.value() != 2)
    c.does_not_fit(cat("the last dim of a signal is 1 (real) or 2 (complex), not ", parts.value()));
  return parts.value() == 2;
}

// Complex numbers [..., n]; none of them has an imaginary part if that is missing.
struct Signal {
  Term re;
  std::optional<Term> im;
};

// Times e^(-2 pi i turn), the other way round for the inverse.
Signal turned(const Signal& x, const Waves& w, bool inverse, const std::function<Term(Term, Term)>& times) {
  const Term re = times(x.re, w.cosine), im = times(x.re, w.sine);
  if (!x.im) return {re, inverse ? im : -im};
  const Term a = times(*x.im, w.sine), b = times(*x.im, w.cosine);
  return inverse ? Signal{re - a, b + im} : Signal{re + a, b - im};
}

// The largest divisor that is not above the root; 1 of a prime.
int64_t lesser_factor(int64_t n) {
  int64_t found = 1;
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) found = d;
  return found;
}

// Sizes up to this are one product with a matrix, as are those without a useful factor.
constexpr int64_t kDense = 32;

// The transform along the last dim, of static size n: that of n1 interleaved parts, a turn, that of n2 neighbours (J. W.
// Cooley and J. W. Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series, 1965), with the factors next
// to the root, so that most of the work is products with two small matrices.
Signal fourier(Builder& b, const Signal& x, int64_t n, bool inverse) {
  const DType type = x.re.dtype();
  const int64_t n1 = lesser_factor(n), n2 = n / n1, rank = x.re.rank();
  if (n <= kDense || n1 < 4)
    return turned(x, waves(b, n, n, n, type), inverse, [](Term t, Term w) { return matmul(t, w); });
  const auto each = [](const Signal& s, const std::function<Term(Term)>& change) {
    return Signal{change(s.re), s.im ? std::optional(change(*s.im)) : std::nullopt};
  };
  Shape parts(x.re.shape().begin(), x.re.shape().end() - 1), whole = parts;
  parts.insert(parts.end(), {n1, n2});
  whole.push_back(n);
  const auto swapped = [&](Term t) { return transpose(t, rank - 1, rank); };
  Signal y =
      fourier(b, each(x, [&](Term t) { return swapped(reshape(t, parts)); }), n1, inverse);  // [..., n2, n1]
  y = turned(y, waves(b, n2, n1, n, type), inverse, [](Term t, Term w) { return t * w; });
  y = fourier(b, each(y, swapped), n2, inverse);  // [..., n1, n2]
  return each(y, [&](Term t) { return reshape(swapped(t), whole); });
}

// x [..., n, 1 or 2] (real or complex) to [..., m, 2], or [..., m, 1] for the inverse of a one-sided
// spectrum.
Term transform(const Context& c, Term x, std::optional<sym::Expr> given, bool inverse, bool onesided) {
  // In f64: in f32, what should cancel leaves the rounding of sin(pi) times the signal.
  const DType type = DType::kF64;
  const int64_t last = x.rank() - 1;
  const sym::Expr n = x.dim(last - 1);
  const bool to_real = inverse && onesided;
  const sym::Expr length = given ? *given : to_real ? (n - 1) * 2 : n;
  const sym::Expr half = sym::floordiv(length, 2) + 1;
  const sym::Expr used = c.b.simplify(sym::min(n, to_real ? half : length)),
                  out = onesided && !inverse ? half : length;
  const auto part = [&](int64_t i) {
    return cast(squeeze(slice(slice(x, last, i, 1), last - 1, 0, used), {last}), type);
  };
  const bool complex = is_complex(c, x);
  const auto assembled = [&](Term re, Term im) {
    const Term y = concat({unsqueeze(re, {last}), unsqueeze(im, {last})}, last);
    return cast(inverse ? y / size_as(c.b, type, length) : y, x.dtype());
  };
  if (const auto size = sym::as_const(c.b.simplify(length));
      size && !to_real && *size > kDense && lesser_factor(*size) >= 4) {
    const auto whole = [&](int64_t i) {
      const Term t = part(i);
      Shape before(t.shape().size(), 0), after = before;
      after.back() = c.b.simplify(length - used);
      return pad(t, before, after, 0);
    };
    const Signal y =
        fourier(c.b, {whole(0), complex ? std::optional(whole(1)) : std::nullopt}, *size, inverse);
    return assembled(slice(y.re, last - 1, 0, out), slice(*y.im, last - 1, 0, out));
  }
  const Waves w = waves(c.b, used, c.b.simplify(out), length, type);
  if (to_real) {
    // Every frequency but the first and the middle one stands for its mirror image too.
    const Term k = index_along(c.b, {used}, 0, DType::kI64), size = size_as(c.b, DType::kI64, length);
    const Term single = logical_or(equal(k, 0), equal(k * 2.0, size));
    const Term weight = select(single, c.number(type, 1), c.number(type, 2));
    Term y = matmul(part(0) * weight, w.cosine);
    if (complex) y = y - matmul(part(1) * weight, w.sine);
    return cast(unsqueeze(y / size_as(c.b, type, length), {last}), x.dtype());
  }
  Term re = matmul(part(0), w.cosine), im = matmul(part(0), w.sine);
  if (!inverse) im = -im;
  if (complex) {
    const Term rotated = matmul(part(1), w.sine);
    re = inverse ? re - rotated : re + rotated;
    im = im + matmul(part(1), w.cosine);
  }
  return assembled(re, im);
}

Outputs dft(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> given{c.integer("axis", c.version >= 20 ? -2 : 1)};
  if (c.version >= 20 && c.has(2)) given = c.sizes_of(2, "axis", -x.rank(), x.rank() - 2);
  if (given.size() != 1) c.does_not_fit("axis must be one number");
  Axes axes = axes_of(c.b, given, x.rank());
  std::optional<sym::Expr> length;
  if (c.has(1)) length = c.size_of(1, "dft_length", 1, kLargestSize);
  const bool inverse = c.integer("inverse", 0) != 0, onesided = c.integer("onesided", 0) != 0;
  if (const auto known = axes.known()) {
    const int64_t axis = known->at(0), next_to_last = x.rank() - 2;
    return {transpose(transform(c, transpose(x, axis, next_to_last), length, inverse, onesided), axis,
                      next_to_last)};
  }
  axes.rank = x.rank() - 1;  // the last dim holds the parts of a number
  const Term parts = apart(x, axes);
  Shape rows(parts.shape().begin(), parts.shape().begin() + axes.rank);
  const Shape kept = rows;
  rows.insert(rows.end(), {axes.pick_size(x.shape()), parts.dim(parts.rank() - 1)});
  const Term y = transform(c, reshape(parts, rows), length, inverse, onesided);
  Shape taken = kept;
  for (int64_t d = 0; d < axes.rank; ++d) taken.push_back(sym::select(axes.has(d), y.dim(axes.rank), 1));
  taken.push_back(y.dim(y.rank() - 1));
  return {together(reshape(y, taken), axes)};
}

Outputs stft(Context& c) {
  const Term x =
      c.in(0).rank() == 2 ? unsqueeze(c.in(0), {2}) : c.in(0);  // onnxruntime takes real signals so, too
  const sym::Expr step = c.size_of(1, "frame_step", 1, kLargestSize);
  sym::Expr length = 0;
  if (c.has(3))
    length = c.size_of(3, "frame_length", 1, x.dim(1));
  else if (c.has(2))
    length = c.in(2).dim(0);
  else
    c.unsupported("STFT needs a window or a frame_length");
  const sym::Expr frames = c.b.simplify(sym::floordiv(x.dim(1) - length, step) + 1);
  const Shape grid{frames, length};
  const Term at = index_along(c.b, grid, 0, DType::kI64) * size_as(c.b, DType::kI64, step) +
                  index_along(c.b, grid, 1, DType::kI64);
  Term framed = gather(x, at, 1);  // [batch, frames, length, 1 or 2]
  if (c.has(2)) framed = framed * reshape(c.in(2), {length, 1});
  const bool complex = is_complex(c, x);
  return {transform(c, framed, std::nullopt, false, !complex && c.integer("onesided", 1) != 0)};
}

// Triangles over the bins of a spectrum whose corners are evenly spaced in mel.
Outputs mel_weight_matrix(Context& c) {
  const sym::Expr bins = c.size_of(0, "num_mel_bins", 0, kLargestSize),
                  length = c.size_of(1, "dft_length", 0, kLargestSize);
  const DType wide = DType::kF64;
  const auto scalar = [&](size_t i) { return cast(reshape(c.in(i), {}), wide); };
  const auto mel = [&](Term hertz) { return log(hertz / 700.0 + 1.0) * (2595 / std::numbers::ln10); };
  const Term low = mel(scalar(3)), high = mel(scalar(4)), rate = scalar(2);
  const Term step = (high - low) / size_as(c.b, wide, bins + 2);
  const Term at = cast(index_along(c.b, {bins + 2}, 0, DType::kI64), wide) * step + low;
  const Term hertz = (pow(number_like(at, 10), at / 2595.0) - 1.0) * 700.0;
  const Term corner = apply(OpKind::kFloor, hertz * size_as(c.b, wide, length + 1) / rate);
  const auto corners = [&](int64_t from) { return slice(corner, 0, from, bins); };
  const Term lower = corners(0), center = corners(1), upper = corners(2);
  const Term bin = cast(index_along(c.b, {sym::floordiv(length, 2) + 1, 1}, 0, DType::kI64), wide);
  const Term rising = logical_and(greater_equal(bin, lower), less_equal(bin, center)),
             falling = logical_and(greater_equal(bin, center), less(bin, upper));
  const Term up = select(equal(center, lower), 1, (bin - lower) / (center - lower)),
             down = (upper - bin) / (upper - center);
  return {cast(select(falling, down, select(rising, up, 0)), c.dtype("output_datatype", DType::kF32))};
}

Term uniform(const Context& c, const Shape& shape, int64_t stream) {
  // Without a seed every node has a stream of its own, the same in each build.
  int64_t seed = c.node.index * 2 + stream;
  if (c.has_attribute("seed")) seed = static_cast<int64_t>(c.number("seed", 0) * 65536) + stream;
  return {c.b,
          c.b.add1(OpKind::kRandomUniform, {}, {{"shape", shape}, {"dtype", DType::kF32}, {"seed", seed}})};
}

template <bool normal, bool like>
Outputs random(Context& c) {
  Shape shape;
  if (like)
    shape = c.in(0).shape();
  else
    for (int64_t d : c.integers("shape")) shape.emplace_back(d);
  const DType type = c.dtype("dtype", like && is_float(c.in(0).dtype()) ? c.in(0).dtype() : DType::kF32);
  if (!normal)
    return {
        cast(uniform(c, shape, 0) * (c.number("high", 1) - c.number("low", 0)) + c.number("low", 0), type)};
  // Box and Muller
  const Term radius = sqrt(log(subtract_from(1, uniform(c, shape, 0))) * -2.0);
  const Term angle = apply(OpKind::kCos, uniform(c, shape, 1) * (2 * std::numbers::pi));
  return {cast(radius * angle * c.number("scale", 1) + c.number("mean", 0), type)};
}

Outputs bernoulli(Context& c) {
  const Term x = c.in(0);
  return {cast(less(uniform(c, x.shape(), 0), cast(x, DType::kF32)), c.dtype("dtype", x.dtype()))};
}

// By inversion: the first class whose share of the sum, with those before it, exceeds a uniform number. x holds logarithms of
// probabilities that need not sum to one.
Outputs multinomial(Context& c) {
  const Term x = widen(c.in(0));
  const int64_t samples = c.integer("sample_size", 1);
  if (samples < 1) c.does_not_fit(cat("sample_size is ", samples));
  const Term weights = exp(x - reduce_max(x, {1}, kKeep));
  const Term sums(c.b, c.b.add1(OpKind::kCumSum, {weights.id()},
                                {{"dim", int64_t{1}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}}));
  const Term total = slice(sums, 1, x.dim(1) - 1, 1);
  const Term drawn = cast(uniform(c, {x.dim(0), samples}, 0), x.dtype()) * total;
  const Term below = less_equal(unsqueeze(sums, {1}), unsqueeze(drawn, {2}));  // [rows, samples, classes]
  return {cast(reduce_sum(cast(below, DType::kI64), {2}), c.dtype("dtype", DType::kI32))};
}

constexpr Row kRows[] = {
    {"Bernoulli", bernoulli},
    {"DFT", dft},
    {"MelWeightMatrix", mel_weight_matrix},
    {"Multinomial", multinomial},
    {"RandomNormal", random<true, false>},
    {"RandomNormalLike", random<true, true>},
    {"RandomUniform", random<false, false>},
    {"RandomUniformLike", random<false, true>},
    {"STFT", stft},
};

}  // namespace

std::span<const Row> signal_rows() { return kRows; }

}  // namespace stridec::onnx
