#include "compiler/ops/composite/signal.h"

#include <numbers>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

bool is_complex(Term signal) {
  const sym::Expr parts = signal.dim(signal.rank() - 1);
  if (!parts.is_const())
    fail(ErrorKind::kUnsupported, "unsupported",
         "whether a signal is real or complex, its last dim, must be known at compile time",
         "fix the size: --dim name=1, or --dim name=2");
  if (parts.value() != 1 && parts.value() != 2)
    does_not_fit(cat("the last dim of a signal is 1 (real) or 2 (complex), not ", parts.value()));
  return parts.value() == 2;
}

Term spectrum(Term x, const SpectrumOptions& options) {
  Builder& b = x.builder();
  const bool inverse = options.inverse, onesided = options.one_sided;
  // NumPy computes forward transforms of narrower types in double precision, but not inverse transforms.
  const DType type = inverse ? widen(x).dtype() : DType::kF64;
  const int64_t last = x.rank() - 1;
  const sym::Expr n = x.dim(last - 1);
  const bool to_real = inverse && onesided;
  const sym::Expr length = b.simplify(options.length ? *options.length : to_real ? (n - 1) * 2 : n);
  const sym::Expr half = b.simplify(sym::floordiv(length, 2) + 1);
  const sym::Expr wanted = to_real ? half : length, used = b.simplify(sym::min(n, wanted));
  Shape before(x.shape().size(), 0), after = before;
  after[static_cast<size_t>(last - 1)] = b.simplify(wanted - used);
  after[static_cast<size_t>(last)] = is_complex(x) ? 0 : 1;
  Term y = pad(cast(slice(x, last - 1, 0, used), type), before, after, 0);
  if (to_real) {
    // Restore the other half: the conjugates of all frequencies except the first and the middle one.
    const Term mirror = flip(slice(y, last - 1, 1, b.simplify(length - half)), {last - 1});
    const Term imaginary = equal(index_along(b, {2}, 0, DType::kI64), 1);
    y = concat({y, select(imaginary, -mirror, mirror)}, last - 1);
  }
  y = fourier(y, inverse);
  if (to_real) y = slice(y, last, 0, 1);
  if (onesided && !inverse) y = slice(y, last - 1, 0, half);
  if (inverse) y = y * divide_into(1, size_as(b, type, length));
  return cast(y, x.dtype());
}

Term spectrum_along(Term x, Axes axes, const SpectrumOptions& options) {
  if (const auto known = axes.known()) {
    const int64_t axis = known->at(0), next_to_last = x.rank() - 2;
    return transpose(spectrum(transpose(x, axis, next_to_last), options), axis, next_to_last);
  }
  axes.rank = x.rank() - 1;  // the last dim holds real and imaginary parts
  const Term parts = apart(x, axes);
  Shape rows(parts.shape().begin(), parts.shape().begin() + axes.rank);
  const Shape kept = rows;
  rows.insert(rows.end(), {axes.pick_size(x.shape()), parts.dim(parts.rank() - 1)});
  const Term y = spectrum(reshape(parts, rows), options);
  Shape taken = kept;
  for (int64_t d = 0; d < axes.rank; ++d) taken.push_back(sym::select(axes.has(d), y.dim(axes.rank), 1));
  taken.push_back(y.dim(y.rank() - 1));
  return together(reshape(y, taken), axes);
}

Term short_time_spectrum(Term x, const FrameOptions& options) {
  Builder& b = x.builder();
  const auto& [step, length, window, one_sided] = options;
  const sym::Expr frames = b.simplify(sym::floordiv(x.dim(1) - length, step) + 1);
  const Shape grid{frames, length};
  const Term at = index_along(b, grid, 0, DType::kI64) * size_as(b, DType::kI64, step) +
                  index_along(b, grid, 1, DType::kI64);
  Term framed = gather(x, at, 1);  // [batch, frames, length, 1 or 2]
  if (window) framed = framed * reshape(*window, {length, 1});
  return spectrum(framed, {.length = {}, .one_sided = !is_complex(x) && one_sided});
}

Term mel_filters(const MelOptions& options, DType dtype) {
  Builder& b = options.rate.builder();
  const sym::Expr bins = options.bins, length = options.length;
  const DType wide = DType::kF64;
  const auto scalar = [&](Term t) { return cast(reshape(t, {}), wide); };
  const auto mel = [&](Term hertz) { return log(hertz / 700.0 + 1.0) * (2595 / std::numbers::ln10); };
  const Term low = mel(scalar(options.low)), high = mel(scalar(options.high)), rate = scalar(options.rate);
  const Term step = (high - low) / size_as(b, wide, bins + 2);
  const Term at = cast(index_along(b, {bins + 2}, 0, DType::kI64), wide) * step + low;
  const Term hertz = (pow(number_like(at, 10), at / 2595.0) - 1.0) * 700.0;
  const Term corner = apply(OpKind::kFloor, hertz * size_as(b, wide, length + 1) / rate);
  const auto corners = [&](int64_t from) { return slice(corner, 0, from, bins); };
  const Term lower = corners(0), center = corners(1), upper = corners(2);
  const Term bin = cast(index_along(b, {sym::floordiv(length, 2) + 1, 1}, 0, DType::kI64), wide);
  const Term rising = logical_and(greater_equal(bin, lower), less_equal(bin, center)),
             falling = logical_and(greater_equal(bin, center), less(bin, upper));
  const Term up = select(equal(center, lower), 1, (bin - lower) / (center - lower)),
             down = (upper - bin) / (upper - center);
  return cast(select(falling, down, select(rising, up, 0)), dtype);
}

}  // namespace stridec::ops
