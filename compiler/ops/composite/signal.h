// Spectra of signals. A signal is [..., n, 1] (real) or [..., n, 2] (complex: real and imaginary part).
#pragma once

#include <optional>

#include "compiler/ops/axes.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// Whether the last dim of a signal is 2. Throws Error if it is not known or neither 1 nor 2.
bool is_complex(Term signal);

struct SpectrumOptions {
  std::optional<sym::Expr> length;  // signals are cut or padded with zeros to it; none: their own length
  bool inverse = false;             // divided by the length
  // Forward: only the first length / 2 + 1 frequencies. Inverse: of such a spectrum; the result is real.
  bool one_sided = false;
};
// The discrete Fourier transform of [..., n, 1 or 2] to [..., m, 2], or [..., m, 1] for the inverse of a
// one-sided spectrum. NumPy's precision: forward transforms are computed in f64, inverse transforms of narrow
// floats in f32.
Term spectrum(Term x, const SpectrumOptions& options);
// The same along one axis of x [..., 1 or 2] that may be known only at run time.
Term spectrum_along(Term x, Axes axis, const SpectrumOptions& options);

// Spectra of frames of a signal [batch, n, 1 or 2]: [batch, frames, frequencies, 2]. Frames start every
// `step` elements and have `length` elements, which are multiplied by `window` [length].
struct FrameOptions {
  sym::Expr step = 1, length = 1;
  std::optional<Term> window;
  bool one_sided = true;
};
Term short_time_spectrum(Term x, const FrameOptions& options);

// Triangular filters [length / 2 + 1, bins] over the frequencies of a spectrum of `length`, with corners
// evenly spaced on the mel scale between `low` and `high` hertz. Scalars; computed in f64.
struct MelOptions {
  sym::Expr bins = 1, length = 1;
  Term rate, low, high;  // samples per second; hertz
};
Term mel_filters(const MelOptions& options, DType dtype);

}  // namespace stridec::ops
