#include "compiler/frontend/aten/complex.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term part(Term pairs, int64_t which) {
  return squeeze(slice(pairs, pairs.rank() - 1, which, 1), {pairs.rank() - 1});
}

Complex argument_pair(const Context& c, const char* name) { return pair_of(c.b, c.arg(name)); }

Results view_as_real(Context& c) {
  Tensor out = c.tensor("self");
  if (!out.complex) c.does_not_fit("view_as_real of real numbers");
  out.complex = false;
  out.strides.reset();
  return {out};
}
Results view_as_complex(Context& c) {
  Tensor out = c.tensor("self");
  if (out.complex) c.does_not_fit("view_as_complex of complex numbers");
  out.complex = true;
  out.strides.reset();
  return {out};
}
template <int64_t which>
Results one_part(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) {
    if (which == 0) return {t};
    c.does_not_fit("the imaginary part of real numbers");
  }
  Tensor out = view_of(t, [](Term base) { return part(base, which); });
  out.complex = false;
  return {out};
}
Results complex(Context& c) { return {joined_value({c.in("real"), c.in("imag")})}; }
Results polar(Context& c) {
  const Term r = c.in("abs"), angle = c.in("angle");
  return {joined_value({r * apply(OpKind::kCos, angle), r * apply(OpKind::kSin, angle)})};
}
Results conj(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) return {t};
  return {joined_value(conjugate(argument_pair(c, "self")))};
}
Results angle(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) {  // pi for negative numbers
    const Term x = c.in("self"), w = is_float(x.dtype()) ? x : cast(x, DType::kF32, false);
    const Term out = select(less(w, 0), number_like(w, std::numbers::pi), number_like(w, 0));
    return {select(apply(OpKind::kIsNan, w), w, expand(out, w.shape()))};
  }
  const Complex p = argument_pair(c, "self");
  return {apply(OpKind::kAtan2, p.im, p.re)};
}

// The discrete Fourier transform, along `dims`, of complex numbers stored as pairs.
Term transformed(Term pairs, const Dims& dims, bool backward, double scale) {
  const int64_t last = pairs.rank() - 2;
  for (int64_t d : dims) pairs = transpose(fourier(transpose(pairs, d, last), backward), d, last);
  return scale == 1 ? pairs : pairs * scale;
}
Term scaled_by(Term t, sym::Expr n, const std::string& norm, bool backward) {
  const bool whole = norm == (backward ? "backward" : "forward"), half = norm == "ortho";
  if (!whole && !half) return t;
  const Term size = cast(size_as(t.builder(), DType::kI64, n), t.dtype(), false);
  return t / (half ? sqrt(size) : size);
}
// "forward", "backward", "ortho" of the C functions: 0 none, 1 by root n, 2 by n.
std::string norm_of(const Context& c, bool backward) {
  if (c.names("norm")) return c.has("norm") ? c.text("norm") : "backward";
  const int64_t mode = c.integer("normalization");
  return mode == 1   ? "ortho"
         : mode == 2 ? (backward ? "backward" : "forward")
                     : (backward ? "forward" : "backward");
}
Term complex_input(const Context& c) {
  const Tensor t = c.tensor("self");
  if (t.complex) return read(c.b, t);
  const Term re =
      is_float(read(c.b, t).dtype()) ? widen(read(c.b, t)) : cast(read(c.b, t), DType::kF32, false);
  return concat({unsqueeze(re, {re.rank()}), unsqueeze(re * 0.0, {re.rank()})}, re.rank());
}
// x, cut or padded with zeros at the end, so that it has n elements along dim.
Term with_size(const Context& c, Term x, int64_t dim, sym::Expr n) {
  const sym::Expr own = c.b.simplify(x.dim(dim));
  n = c.b.simplify(n);
  if (own == n || c.b.holds(sym::eq(own, n))) return x;
  if (c.b.holds(sym::le(n, own))) return slice(x, dim, 0, n);
  if (!c.b.holds(sym::ge(n, own))) c.unsupported("a Fourier transform that cuts or pads an open size");
  Shape before(x.shape().size(), 0), after = before;
  after[static_cast<size_t>(dim)] = c.b.simplify(n - own);
  return ops::pad(x, before, after, 0);
}

// The dims of a transform, and its sizes if they are given.
struct Transform {
  Dims dims;
  Shape sizes;  // empty: those of the input
};
Transform transform_of(const Context& c) {
  const int64_t rank = std::ssize(shape_of(c.b, c.tensor("self")));
  Transform out;
  for (const char* n : {"n", "s"})
    if (c.names(n) && c.has(n)) out.sizes = c.sizes(n);
  if (c.has("dim")) {
    out.dims = c.listed_dims("dim", rank);
  } else {
    const int64_t count = out.sizes.empty() ? rank : std::ssize(out.sizes);
    for (int64_t d = std::max<int64_t>(rank - count, 0); d < rank; ++d) out.dims.push_back(d);
  }
  if (!out.sizes.empty() && out.sizes.size() != out.dims.size())
    c.does_not_fit("a Fourier transform has another number of sizes than dims");
  for (size_t i = 0; i < out.sizes.size(); ++i)  // -1: the input's size
    if (out.sizes[i].is_const(-1))
      out.sizes[i] = shape_of(c.b, c.tensor("self"))[static_cast<size_t>(out.dims[i])];
  return out;
}
Tensor as_complex(Term pairs) {
  Tensor out = fresh(pairs);
  out.complex = true;
  return out;
}

Term complex_to_complex(const Context& c, const Transform& t, bool backward) {
  Term x = complex_input(c);
  for (size_t i = 0; i < t.sizes.size(); ++i) x = with_size(c, x, t.dims[i], t.sizes[i]);
  sym::Expr count = 1;
  for (int64_t d : t.dims) count = count * x.dim(d);
  return scaled_by(transformed(x, t.dims, backward, 1), count, norm_of(c, backward), backward);
}
Term first_half(const Context& c, Term x, int64_t dim) {
  return slice(x, dim, 0, c.b.simplify(sym::floordiv(x.dim(dim), 2) + 1));
}
// With `half` the result has the first n / 2 + 1 frequencies of the last dim; the others are their
// conjugates.
template <bool backward, bool half>
Results fourier_row(Context& c) {
  const Transform t = transform_of(c);
  const Term x = complex_to_complex(c, t, backward);
  return {as_complex(half ? first_half(c, x, t.dims.back()) : x)};
}
Results fft_c2c(Context& c) {
  return {as_complex(complex_to_complex(c, transform_of(c), !c.flag("forward")))};
}
Results fft_r2c(Context& c) {
  const Transform t = transform_of(c);
  const Term x = complex_to_complex(c, t, false);
  return {as_complex(c.flag("onesided") ? first_half(c, x, t.dims.back()) : x)};
}
Term conjugate(Term pairs) {
  const int64_t last = pairs.rank() - 1;
  return concat({slice(pairs, last, 0, 1), -slice(pairs, last, 1, 1)}, last);
}

// All n frequencies along a dim that has the first n / 2 + 1 of them: x[n - k] is the conjugate of x[k].
Term whole_spectrum(Term x, int64_t dim, sym::Expr n) {
  Builder& b = x.builder();
  const Term k = index_along(b, {n}, 0, DType::kI64), size = size_as(b, DType::kI64, n);
  const Term mirrored = greater(k, size_as(b, DType::kI64, sym::floordiv(n, 2)));
  const Term at = select(mirrored, size - k, k), whole = gather(x, at, dim);
  return select(expand(along_dim(mirrored, dim, whole.rank()), whole.shape()), conjugate(whole), whole);
}

// The transform of a half spectrum (n / 2 + 1 of n frequencies of the last transformed dim) to real numbers.
Term half_to_real(const Context& c, const Transform& t, sym::Expr n, bool backward) {
  Term x = complex_input(c);
  const int64_t last = t.dims.back();
  for (size_t i = 0; i + 1 < t.sizes.size(); ++i) x = with_size(c, x, t.dims[i], t.sizes[i]);
  x = with_size(c, x, last, sym::floordiv(n, 2) + 1);
  const Dims others(t.dims.begin(), t.dims.end() - 1);
  x = transformed(x, others, backward, 1);
  x = whole_spectrum(x, last, n);
  x = part(transformed(x, {last}, backward, 1), 0);
  sym::Expr count = 1;
  for (int64_t d : t.dims) count = count * x.dim(d);
  return scaled_by(x, count, norm_of(c, backward), backward);
}
template <bool backward>
Results half_to_real_row(Context& c) {
  const Transform t = transform_of(c);
  const Shape own = shape_of(c.b, c.tensor("self"));
  const sym::Expr n = t.sizes.empty() ? (own[static_cast<size_t>(t.dims.back())] - 1) * 2 : t.sizes.back();
  return {half_to_real(c, t, c.b.simplify(n), backward)};
}
Results fft_c2r(Context& c) { return {half_to_real(c, transform_of(c), c.size("last_dim_size"), true)}; }
// The inverse of hfft: the first half of an inverse transform of real numbers.
Results fft_ihfft(Context& c) {
  const Transform t = transform_of(c);
  return {as_complex(first_half(c, complex_to_complex(c, t, true), t.dims.back()))};
}

template <bool back>
Results fft_shift(Context& c) {
  const Tensor t = c.tensor("self");
  Term x = read(c.b, t);
  for (int64_t d : c.dims("dim", std::ssize(shape_of(c.b, t)))) {
    const sym::Expr n = x.dim(d), at = c.b.simplify(sym::floordiv(back ? n : n + 1, 2));
    x = concat({slice(x, d, at, c.b.simplify(n - at)), slice(x, d, 0, at)}, d);
  }
  Tensor out = fresh(x);
  out.complex = t.complex;
  return {out};
}

// The window of an stft with zeros on both sides, n elements in all.
Term centred_window(const Context& c, int64_t n) {
  const Term w = c.in("window");
  const sym::Expr length = w.dim(0), before = c.b.simplify(sym::floordiv(n - length, 2));
  if (!length.is_const() || length.value() > n)
    c.unsupported("stft with a window whose length is not known or exceeds n_fft");
  return pad(w, {before}, {c.b.simplify(n - length - before)}, 0);
}
Results stft(Context& c) {
  Term x = c.in("self");
  if (c.names("center") && c.flag("center")) c.unsupported("stft with center");
  const bool added = x.rank() == 1;
  if (added) x = unsqueeze(x, {0});
  const int64_t n = c.integer("n_fft"), hop = c.has("hop_length") ? c.integer("hop_length") : n / 4;
  const sym::Expr frames = c.b.simplify(sym::floordiv(x.dim(1) - n, hop) + 1);
  const Shape grid{frames, n};
  const Term at = index_along(c.b, grid, 0, DType::kI64) * static_cast<double>(hop) +
                  index_along(c.b, grid, 1, DType::kI64);
  Term windows = gather(x, at, 1);  // [batch, frames, n]
  if (c.has("window")) {
    windows = windows * centred_window(c, n);
  } else if (c.has("win_length") && c.integer("win_length") != n) {
    c.unsupported("stft with a length of windows and no window");
  }
  const Term pairs = concat({unsqueeze(windows, {3}), unsqueeze(windows * 0.0, {3})}, 3);
  Term y = fourier(pairs, false);
  if (c.flag("normalized")) y = y * (1 / std::sqrt(static_cast<double>(n)));
  if (!c.has("onesided") || c.flag("onesided")) y = slice(y, 2, 0, n / 2 + 1);
  y = transpose(y, 1, 2);  // [batch, frequencies, frames, 2]
  Tensor out = fresh(added ? squeeze(y, {0}) : y);
  out.complex = c.has("return_complex") && c.flag("return_complex");
  return {out};
}

// Sums of frames [batch, n, count] that begin `hop` elements apart.
Term overlapped(Term frames, int64_t hop) {
  Builder& b = frames.builder();
  const Shape grid{frames.dim(1), frames.dim(2)};
  const sym::Expr rows = frames.dim(0), all = count(grid);
  const sym::Expr length = b.simplify(grid[0] + (grid[1] - 1) * hop);
  const Term at =
      index_along(b, grid, 0, DType::kI64) + index_along(b, grid, 1, DType::kI64) * static_cast<double>(hop);
  return scatter_elements(filled(b, {rows, length}, frames.dtype(), 0),
                          expand(reshape(at, {1, all}), {rows, all}), reshape(frames, {rows, all}), 1, "add");
}

Results istft(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) c.does_not_fit("istft of real numbers");
  if (c.flag("return_complex")) c.unsupported("istft with return_complex");
  Term x = read(c.b, t);  // [batch, frequencies, frames, 2]
  const bool added = x.rank() == 3;
  if (added) x = unsqueeze(x, {0});
  const int64_t n = c.integer("n_fft"), hop = c.has("hop_length") ? c.integer("hop_length") : n / 4;
  const int64_t width = c.has("win_length") ? c.integer("win_length") : n;
  x = transpose(x, 1, 2);
  x = whole_spectrum(slice(x, 2, 0, n / 2 + 1), 2, n);  // PyTorch, too, reads the first half alone
  const double size = static_cast<double>(n);
  Term y = part(fourier(x, true), 0) / (c.flag("normalized") ? std::sqrt(size) : size);
  Term window = c.has("window") ? c.in("window") : filled(c.b, {width}, y.dtype(), 1);
  const int64_t before = (n - width) / 2;
  window = ops::pad(window, {before}, {n - width - before}, 0);
  const Term scale = expand(reshape(square(window), {1, n, 1}), {1, n, y.dim(1)});
  Term sums = overlapped(transpose(y * window, 1, 2), hop), weights = overlapped(scale, hop);
  const int64_t start = c.flag("center") ? n / 2 : 0;
  sym::Expr length = c.b.simplify(sums.dim(1) - 2 * start);
  if (c.has("length")) {
    length = c.size("length");
    sums = ops::pad(sums, {0, 0}, {0, length}, 0);
    weights = ops::pad(weights, {0, 0}, {0, length}, 1);
  }
  y = slice(sums, 1, start, length) / slice(weights, 1, start, length);
  return {added ? squeeze(y, {0}) : y};
}

constexpr auto kRows = for_complex({
    {"_conj", conj},
    {"_conj_physical", conj},
    {"_fft_c2c", fft_c2c},
    {"_fft_c2r", fft_c2r},
    {"_fft_r2c", fft_r2c},
    {"angle", angle},
    {"complex", complex},
    {"conj", conj},
    {"conj_physical", conj},
    {"fft_fft", fourier_row<false, false>},
    {"fft_fft2", fourier_row<false, false>},
    {"fft_fftn", fourier_row<false, false>},
    {"fft_fftshift", fft_shift<false>},
    {"fft_hfft", half_to_real_row<false>},
    {"fft_hfft2", half_to_real_row<false>},
    {"fft_hfftn", half_to_real_row<false>},
    {"fft_ifft", fourier_row<true, false>},
    {"fft_ifft2", fourier_row<true, false>},
    {"fft_ifftn", fourier_row<true, false>},
    {"fft_ifftshift", fft_shift<true>},
    {"fft_ihfft", fft_ihfft},
    {"fft_ihfft2", fft_ihfft},
    {"fft_ihfftn", fft_ihfft},
    {"fft_irfft", half_to_real_row<true>},
    {"fft_irfft2", half_to_real_row<true>},
    {"fft_irfftn", half_to_real_row<true>},
    {"fft_rfft", fourier_row<false, true>},
    {"fft_rfft2", fourier_row<false, true>},
    {"fft_rfftn", fourier_row<false, true>},
    {"imag", one_part<1>},
    {"istft", istft},
    {"polar", polar},
    {"real", one_part<0>},
    {"stft", stft},
    {"view_as_complex", view_as_complex},
    {"view_as_real", view_as_real},
});

}  // namespace

Results complex_arithmetic(Context& c, ComplexOp op) {
  const Value &self = c.arg("self"), &other = c.arg("other");
  const DType dtype = float_type(result_type(c.b, {self, other}));
  const Complex x = pair_of(c.b, self, dtype);
  Complex y = pair_of(c.b, other, dtype);
  if (c.has("alpha")) {
    const Value& alpha = c.arg("alpha");
    if (alpha.kind == Value::Kind::kComplex)
      y = y * pair_of(c.b, alpha, dtype);
    else if (alpha.kind != Value::Kind::kInt || !alpha.integer.is_const(1))
      y = {y.re * c.scalar("alpha", dtype), y.im * c.scalar("alpha", dtype)};
  }
  switch (op) {
    case ComplexOp::kAdd: return {joined_value(x + y)};
    case ComplexOp::kSub: return {joined_value(x - y)};
    case ComplexOp::kMul: return {joined_value(x * y)};
    case ComplexOp::kDiv: {
      const Term size = square(y.re) + square(y.im);
      const Complex z = x * conjugate(y);
      return {joined_value({z.re / size, z.im / size})};
    }
  }
  return {};
}

std::span<const Row> complex_rows() { return kRows; }

}  // namespace stridec::aten
