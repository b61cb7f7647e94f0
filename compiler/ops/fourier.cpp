// The discrete Fourier transform: calls of a library routine, and Bluestein's algorithm for lengths with
// large prime factors.
#include <numbers>

#include "compiler/ops/call.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// e^(2 pi i k / n) as [..., 2] for k in [0, n). Angles are reduced to at most pi / 4, so that values of 0, 1
// and -1 are exact and mirrored angles give equal values.
Term turns(Term k, sym::Expr n, DType type) {
  Builder& b = k.builder();
  const Term whole = size_as(b, DType::kI64, n);
  const Term quarter = k * 4.0 / whole, rest = k * 4.0 - quarter * whole;
  const Term beyond = greater(rest * 2.0, whole);
  const Term angle = cast(select(beyond, whole - rest, rest), DType::kF64) * (std::numbers::pi / 2) /
                     size_as(b, DType::kF64, n);
  const Term near = cast(apply(OpKind::kCos, angle), type), far = cast(apply(OpKind::kSin, angle), type);
  const Term c = select(beyond, far, near), s = select(beyond, near, far);
  const auto is = [&](int64_t q) { return equal(quarter, static_cast<double>(q)); };
  const Term re = select(is(0), c, select(is(1), -s, select(is(2), -c, s)));
  const Term im = select(is(0), s, select(is(1), c, select(is(2), -s, -c)));
  return concat({unsqueeze(re, {k.rank()}), unsqueeze(im, {k.rank()})}, k.rank());
}

Term all_indices(Builder& b, sym::Expr n) { return index_along(b, {n}, 0, DType::kI64); }

// Mixed-radix transform by the factors of n.
Term composite_fourier(Term x, bool backward) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(x.rank() - 2);
  const Term waves = turns(all_indices(b, n), n, x.dtype());
  return {b, add_call(b, "fourier", {x, waves}, {{"backward", int64_t{backward}}})[0]};
}

// Relative cost, and the smallest length of at least n with no prime factor above 11, as in pocketfft.
double cost(int64_t n) {
  double sum = 0;
  const int64_t whole = n;
  for (; n % 2 == 0; n /= 2) sum += 2;
  for (int64_t d = 3; d * d <= n; d += 2)
    for (; n % d == 0; n /= d) sum += d <= 5 ? static_cast<double>(d) : 1.1 * static_cast<double>(d);
  if (n > 1) sum += n <= 5 ? static_cast<double>(n) : 1.1 * static_cast<double>(n);
  return sum * static_cast<double>(whole);
}
int64_t good_length(int64_t n) {
  for (;; ++n) {
    int64_t rest = n;
    for (int64_t d : {2, 3, 5, 7, 11})
      while (rest % d == 0) rest /= d;
    if (rest == 1) return n;
  }
}

// x [..., n, 2] times w [n, 2] or its conjugate (complex multiplication).
Term times(Term x, Term w, bool conjugate) {
  const int64_t last = x.rank() - 1;
  const auto part = [](Term t, int64_t i) { return slice(t, t.rank() - 1, i, 1); };
  const Term a = part(x, 0), b = part(x, 1), c = part(w, 0), s = conjugate ? -part(w, 1) : part(w, 1);
  return concat({a * c - b * s, a * s + b * c}, last);
}

// Expresses the transform as a convolution with a chirp (L. I. Bluestein, A Linear Filtering Approach to the
// Computation of the Discrete Fourier Transform, 1970). The convolution multiplies transforms of a length
// without large prime factors.
Term chirp_fourier(Term x, int64_t n, int64_t longer, bool backward) {
  Builder& b = x.builder();
  const auto chirp = [&](Term m) {
    return turns(apply(OpKind::kMod, m * m, static_cast<double>(2 * n)), 2 * n, x.dtype());
  };
  const Term at = all_indices(b, longer), place = minimum(at, subtract_from(static_cast<double>(longer), at));
  const Term inside = unsqueeze(less(place, static_cast<double>(n)), {1});
  const Term filter = composite_fourier(
      select(inside, chirp(minimum(place, static_cast<double>(n - 1))) / static_cast<double>(longer), 0.0),
      false);
  const Term turn = chirp(all_indices(b, n));
  const auto rows = static_cast<size_t>(x.rank());
  Shape none(rows, 0), after(rows, 0);
  after[rows - 2] = longer - n;
  Term y = composite_fourier(pad(times(x, turn, !backward), none, after, 0), false);
  y = composite_fourier(times(y, filter, backward), true);
  return times(slice(y, x.rank() - 2, 0, n), turn, !backward);
}

}  // namespace

Term fourier(Term x, bool backward) {
  if (const auto n = sym::as_const(x.builder().simplify(x.dim(x.rank() - 2))); n && *n >= 50) {
    const int64_t longer = good_length(2 * *n - 1);
    if (3 * cost(longer) < cost(*n)) return chirp_fourier(x, *n, longer, backward);
  }
  return composite_fourier(x, backward);
}

}  // namespace stridec::ops
