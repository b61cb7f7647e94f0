#include "compiler/frontend/aten/complex.h"

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

struct Pair {
  Term re, im;
};

Term part(Term pairs, int64_t which) {
  return squeeze(slice(pairs, pairs.rank() - 1, which, 1), {pairs.rank() - 1});
}

Value joined(const Pair& p) {
  const int64_t rank = p.re.rank();
  Tensor out = fresh(concat({unsqueeze(p.re, {rank}), unsqueeze(p.im, {rank})}, rank));
  out.complex = true;
  return out;
}

Pair pair_of(const Context& c, const char* name) {
  const Value& v = c.arg(name);
  if (v.kind == Value::Kind::kComplex)
    return {number(c.b, DType::kF32, v.number), number(c.b, DType::kF32, v.imaginary)};
  if (v.is_tensor() && v.tensor.complex) {
    const Term t = read(c.b, v.tensor);
    return {part(t, 0), part(t, 1)};
  }
  const Term re = cast(as_term(c.b, v), DType::kF32, false);
  return {re, re * 0.0};
}

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
Results complex(Context& c) { return {joined({c.in("real"), c.in("imag")})}; }
Results polar(Context& c) {
  const Term r = c.in("abs"), angle = c.in("angle");
  return {joined({r * apply(OpKind::kCos, angle), r * apply(OpKind::kSin, angle)})};
}
Results conj(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) return {t};
  const Pair p = pair_of(c, "self");
  return {joined({p.re, -p.im})};
}
Results angle(Context& c) {
  const Tensor t = c.tensor("self");
  if (!t.complex) c.unsupported("the angle of real numbers");
  const Pair p = pair_of(c, "self");
  return {apply(OpKind::kAtan2, p.im, p.re)};
}

// Discrete Fourier transforms along dims of pairs.
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
Results fft(Context& c, Dims dims, bool backward, bool half) {
  Term x = complex_input(c);
  for (const char* n : {"n", "s"})
    if (c.names(n) && c.has(n)) c.unsupported("a Fourier transform with another size than the input's");
  sym::Expr count = 1;
  for (int64_t d : dims) count = count * x.dim(d);
  x = scaled_by(transformed(x, dims, backward, 1), count, norm_of(c, backward), backward);
  if (half) {
    const int64_t d = dims.back();
    x = slice(x, d, 0, c.b.simplify(sym::floordiv(x.dim(d), 2) + 1));
  }
  Tensor out = fresh(x);
  out.complex = true;
  return {out};
}
Dims transform_dims(const Context& c) {
  const int64_t rank = std::ssize(shape_of(c.b, c.tensor("self")));
  if (!c.has("dim")) {
    Dims all;
    for (int64_t d = 0; d < rank; ++d) all.push_back(d);
    return all;
  }
  Dims out;
  for (int64_t d : c.integers("dim")) out.push_back(normal_dim(d, rank));
  return out;
}
template <bool backward, bool half>
Results fourier_row(Context& c) {
  return fft(c, transform_dims(c), backward, half);
}
Results fft_c2c(Context& c) { return fft(c, transform_dims(c), !c.flag("forward"), false); }
Results fft_r2c(Context& c) { return fft(c, transform_dims(c), false, c.flag("onesided")); }

Results stft(Context& c) {
  Term x = c.in("self");
  if (c.names("center") && c.flag("center")) c.unsupported("stft with center");
  if (c.flag("normalized")) c.unsupported("stft with normalized");
  const bool added = x.rank() == 1;
  if (added) x = unsqueeze(x, {0});
  const int64_t n = c.integer("n_fft"), hop = c.has("hop_length") ? c.integer("hop_length") : n / 4;
  const sym::Expr frames = c.b.simplify(sym::floordiv(x.dim(1) - n, hop) + 1);
  const Shape grid{frames, n};
  const Term at = index_along(c.b, grid, 0, DType::kI64) * static_cast<double>(hop) +
                  index_along(c.b, grid, 1, DType::kI64);
  Term windows = gather(x, at, 1);  // [batch, frames, n]
  if (c.has("window")) {
    const Term w = c.in("window");
    if (!w.dim(0).is_const(n)) c.unsupported("stft with a window shorter than n_fft");
    windows = windows * w;
  }
  const Term pairs = concat({unsqueeze(windows, {3}), unsqueeze(windows * 0.0, {3})}, 3);
  Term y = fourier(pairs, false);
  if (!c.has("onesided") || c.flag("onesided")) y = slice(y, 2, 0, n / 2 + 1);
  y = transpose(y, 1, 2);  // [batch, frequencies, frames, 2]
  Tensor out = fresh(added ? squeeze(y, {0}) : y);
  out.complex = c.has("return_complex") && c.flag("return_complex");
  return {out};
}

constexpr Row kRows[] = {
    {"_conj", conj},
    {"_conj_physical", conj},
    {"_fft_c2c", fft_c2c},
    {"_fft_r2c", fft_r2c},
    {"angle", angle},
    {"complex", complex},
    {"conj", conj},
    {"fft_fft", fourier_row<false, false>},
    {"fft_fft2", fourier_row<false, false>},
    {"fft_fftn", fourier_row<false, false>},
    {"fft_ifft", fourier_row<true, false>},
    {"fft_ifft2", fourier_row<true, false>},
    {"fft_ifftn", fourier_row<true, false>},
    {"fft_rfft", fourier_row<false, true>},
    {"fft_rfft2", fourier_row<false, true>},
    {"fft_rfftn", fourier_row<false, true>},
    {"imag", one_part<1>},
    {"polar", polar},
    {"real", one_part<0>},
    {"stft", stft},
    {"view_as_complex", view_as_complex},
    {"view_as_real", view_as_real},
};

}  // namespace

bool is_complex(const Value& value) {
  return value.kind == Value::Kind::kComplex || (value.is_tensor() && value.tensor.complex);
}

Results complex_arithmetic(Context& c, ComplexOp op) {
  const Pair x = pair_of(c, "self"), y = pair_of(c, "other");
  switch (op) {
    case ComplexOp::kAdd: return {joined({x.re + y.re, x.im + y.im})};
    case ComplexOp::kSub: return {joined({x.re - y.re, x.im - y.im})};
    case ComplexOp::kMul: return {joined({x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re})};
    case ComplexOp::kDiv: {
      const Term size = square(y.re) + square(y.im);
      return {joined({(x.re * y.re + x.im * y.im) / size, (x.im * y.re - x.re * y.im) / size})};
    }
  }
  return {};
}

std::span<const Row> complex_rows() { return kRows; }

}  // namespace stridec::aten
