// Fourier transforms and random numbers.
#include <functional>
#include <numbers>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// A signal is real if its last dim is 1 and complex if it is 2.
bool is_complex(const Context& c, Term x) {
  const sym::Expr parts = x.dim(x.rank() - 1);
  if (!parts.is_const())
    c.unsupported("whether a signal is real or complex, its last dim, must be known at compile time",
                  "fix the size: --dim name=1, or --dim name=2");
  if (parts.value() != 1 && parts.value() != 2)
    c.does_not_fit(cat("the last dim of a signal is 1 (real) or 2 (complex), not ", parts.value()));
  return parts.value() == 2;
}

// x [..., n, 1 or 2] (real or complex) to [..., m, 2]; to [..., m, 1] for the inverse of a one-sided
// spectrum.
Term transform(const Context& c, Term x, std::optional<sym::Expr> given, bool inverse, bool onesided) {
  // NumPy computes forward transforms of narrower types in double precision, but not inverse transforms.
  const DType type = inverse ? widen(x).dtype() : DType::kF64;
  const int64_t last = x.rank() - 1;
  const sym::Expr n = x.dim(last - 1);
  const bool to_real = inverse && onesided;
  const sym::Expr length = c.b.simplify(given ? *given : to_real ? (n - 1) * 2 : n);
  const sym::Expr half = c.b.simplify(sym::floordiv(length, 2) + 1);
  const sym::Expr wanted = to_real ? half : length, used = c.b.simplify(sym::min(n, wanted));
  Shape before(x.shape().size(), 0), after = before;
  after[static_cast<size_t>(last - 1)] = c.b.simplify(wanted - used);
  after[static_cast<size_t>(last)] = is_complex(c, x) ? 0 : 1;
  Term y = pad(cast(slice(x, last - 1, 0, used), type), before, after, 0);
  if (to_real) {
    // Restore the other half: the conjugates of all frequencies except the first and the middle one.
    const Term mirror = flip(slice(y, last - 1, 1, c.b.simplify(length - half)), {last - 1});
    const Term imaginary = equal(index_along(c.b, {2}, 0, DType::kI64), 1);
    y = concat({y, select(imaginary, -mirror, mirror)}, last - 1);
  }
  y = fourier(y, inverse);
  if (to_real) y = slice(y, last, 0, 1);
  if (onesided && !inverse) y = slice(y, last - 1, 0, half);
  if (inverse) y = y * divide_into(1, size_as(c.b, type, length));
  return cast(y, x.dtype());
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
  axes.rank = x.rank() - 1;  // the last dim holds real and imaginary parts
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
      // Onnxruntime also accepts real signals of rank 2.
      c.in(0).rank() == 2 ? unsqueeze(c.in(0), {2}) : c.in(0);
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

// Triangular filters over the bins of a spectrum, with corners evenly spaced on the mel scale.
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
  // Without a seed, every node has its own stream, which is the same in each build.
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
  // Box-Muller transform
  const Term radius = sqrt(log(subtract_from(1, uniform(c, shape, 0))) * -2.0);
  const Term angle = apply(OpKind::kCos, uniform(c, shape, 1) * (2 * std::numbers::pi));
  return {cast(radius * angle * c.number("scale", 1) + c.number("mean", 0), type)};
}

Outputs bernoulli(Context& c) {
  const Term x = c.in(0);
  return {cast(less(uniform(c, x.shape(), 0), cast(x, DType::kF32)), c.dtype("dtype", x.dtype()))};
}

// Inverse transform sampling: the first class whose cumulative share exceeds a uniform random number. x holds
// logarithms of probabilities, which need not be normalised.
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
