// The discrete Fourier transform of n complex values, for any n: the implementation of the routine "fourier"
// of library.def.
//
// This text is compiled into the interpreter and pasted into kernels, so it includes no header; int64_t is
// predefined. V is a scalar or a vector of type T; every vector lane is a separate transform.
//
// Method: P. N. Swarztrauber, Vectorizing the FFTs (1982), in the form of M. Reinecke's pocketfft, which
// NumPy uses. The factors and additions are kept in its order, and no multiplication is contracted into an
// fma, so that results equal NumPy's bit for bit if the twiddle factors do.

namespace stridec::fourier {

#ifdef __clang__
#pragma clang fp contract(off)
#endif
#ifdef __CUDACC__
inline float product(float a, float b) { return __fmul_rn(a, b); }
inline double product(double a, double b) { return __dmul_rn(a, b); }
#else
template <class V, class T>
inline V product(V a, T b) {
  return a * b;
}
#endif

template <class V>
struct Complex {
  V re, im;
};
template <class V>
inline Complex<V> operator+(Complex<V> a, Complex<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
inline Complex<V> operator-(Complex<V> a, Complex<V> b) {
  return {a.re - b.re, a.im - b.im};
}

// Writes at most 64 factors; none for n = 0.
inline int factorize(int64_t n, int64_t* factors) {
  int count = 0;
  if (n == 0) return 0;
  for (; n % 8 == 0; n /= 8) factors[count++] = 8;
  for (; n % 4 == 0; n /= 4) factors[count++] = 4;
  if (n % 2 == 0) {
    n /= 2;
    if (count) factors[count] = factors[0];
    factors[0] = 2;
    ++count;
  }
  for (int64_t d = 3; d * d <= n; d += 2)
    for (; n % d == 0; n /= d) factors[count++] = d;
  if (n > 1) factors[count++] = n;
  return count;
}

// One bit per factor that has a specialised pass; bit 0 stands for all other factors.
constexpr unsigned kOwnPasses = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 7 | 1u << 8;
constexpr unsigned pass_of(int64_t p) { return p < 9 && kOwnPasses >> p & 1 ? 1u << p : 1u; }

// One transform, or one per lane of V. kPasses: the pass_of() bits of the factors that n may have.
template <class V, class T, bool kBackward, unsigned kPasses = kOwnPasses | 1>
struct Transform {
  using C = Complex<V>;
  int64_t n;
  const T* waves;  // twiddle factors: n pairs of cosine and sine of 2 pi k / n

  // x times twiddle factor k, in the direction of the transform.
  C turned(C x, int64_t k) const {
    const T c = waves[2 * k], s = kBackward ? waves[2 * k + 1] : -waves[2 * k + 1];
    return {product(x.re, c) - product(x.im, s), product(x.im, c) + product(x.re, s)};
  }
  // x times i or -i.
  C quarter(C x) const { return kBackward ? C{-x.im, x.re} : C{x.im, -x.re}; }
  // x times the square root of one half and the twiddle factor of one eighth (below: three eighths) of a
  // turn.
  C eighth(C x, T root) const {
    return kBackward ? C{product(x.re - x.im, root), product(x.im + x.re, root)}
                     : C{product(x.re + x.im, root), product(x.im - x.re, root)};
  }
  C three_eighths(C x, T root) const {
    return kBackward ? C{product(-x.re - x.im, root), product(x.re - x.im, root)}
                     : C{product(x.im - x.re, root), product(-x.re - x.im, root)};
  }

  static void two(C* x) {
    const C a = x[0], b = x[1];
    x[0] = a + b, x[1] = a - b;
  }
  void four(C* x) const {
    const C a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = quarter(x[1] - x[3]);
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
  }
  void eight(C* x) const {
    const T root = (T)0.707106781186547524400844362104849;
    const C p = x[1] + x[5], q = x[3] + x[7], r = x[1] - x[5], s = quarter(x[3] - x[7]);
    const C a1 = p + q, a3 = quarter(p - q), a5 = eighth(r + s, root), a7 = three_eighths(r - s, root);
    const C t = x[0] + x[4], a4 = x[0] - x[4], u = x[2] + x[6], a6 = quarter(x[2] - x[6]);
    const C even = t + u, odd = t - u, low = a4 + a6, high = a4 - a6;
    x[0] = even + a1, x[4] = even - a1, x[2] = odd + a3, x[6] = odd - a3;
    x[1] = low + a5, x[5] = low - a5, x[3] = high + a7, x[7] = high - a7;
  }
  // A butterfly of odd p values; sums and differences have room for p / 2. With `paired`, terms after the
  // first two are added in pairs.
  void odd(C* x, int64_t p, C* sums, C* differences, bool paired) const {
    const int64_t half = p / 2, step = n / p;
    C whole = x[0];
    for (int64_t j = 1; j <= half; ++j) {
      sums[j - 1] = x[j] + x[p - j], differences[j - 1] = x[j] - x[p - j];
      whole = whole + sums[j - 1];
    }
    const C first = x[0];
    x[0] = whole;
    for (int64_t u = 1; u <= half; ++u) {
      C a = first, b{};
      int64_t m = 0;
      const auto term = [&](int64_t j, C& even, C& uneven) {
        m += u;
        if (m >= p) m -= p;
        const T c = waves[2 * m * step], s = kBackward ? waves[2 * m * step + 1] : -waves[2 * m * step + 1];
        even = {product(sums[j].re, c), product(sums[j].im, c)};
        uneven = {-product(differences[j].im, s), product(differences[j].re, s)};
      };
      for (int64_t j = 0; j < half; ++j) {
        C even, uneven;
        term(j, even, uneven);
        if (paired && j >= 2 && j + 1 < half) {
          C next, next_uneven;
          term(++j, next, next_uneven);
          even = even + next, uneven = uneven + next_uneven;
        }
        a = a + even;
        b = j ? b + uneven : uneven;
      }
      x[u] = a + b, x[p - u] = a - b;
    }
  }

  // One pass: l1 * ido butterflies of p values each, from `from` to `to`, with the results multiplied by
  // their twiddle factors. kP is p, or 0 for any odd p, with room for 2 p values at `room`.
  template <int kP>
  void pass(int64_t p, int64_t l1, const C* from, C* to, C* room) const {
    const int64_t ido = n / (p * l1);
    C local[kP ? 2 * kP : 1];
    C* const x = kP ? local : room;
    for (int64_t k = 0; k < l1; ++k)
      for (int64_t i = 0; i < ido; ++i) {
        for (int64_t j = 0; j < (kP ? kP : p); ++j) x[j] = from[i + ido * (j + p * k)];
        if constexpr (kP == 2)
          two(x);
        else if constexpr (kP == 4)
          four(x);
        else if constexpr (kP == 8)
          eight(x);
        else if constexpr (kP != 0)
          odd(x, kP, x + kP, x + kP + kP / 2, false);
        else
          odd(x, p, x + p, x + p + p / 2, p > 11);
        for (int64_t j = 0; j < (kP ? kP : p); ++j)
          to[i + ido * (k + l1 * j)] = i && j ? turned(x[j], j * l1 * i) : x[j];
      }
  }

  template <int kP>
  void take(int64_t p, int64_t l1, const C* from, C* to, C* room) const {
    if constexpr (kPasses >> kP & 1)
      if (pass_of(p) == 1u << kP) pass<kP>(p, l1, from, to, room);
  }

  // Transforms the n values at x. `other` has room for n values, `room` for twice the largest odd factor.
  // Returns where the result is: x or other.
  C* run(C* x, C* other, C* room) const {
    int64_t factors[64], l1 = 1;
    const int count = factorize(n, factors);
    for (int f = 0; f < count; ++f) {
      const int64_t p = factors[f];
      take<2>(p, l1, x, other, room), take<3>(p, l1, x, other, room), take<4>(p, l1, x, other, room);
      take<5>(p, l1, x, other, room), take<7>(p, l1, x, other, room), take<8>(p, l1, x, other, room);
      take<0>(p, l1, x, other, room);
      C* const done = other;
      other = x, x = done;
      l1 *= p;
    }
    return x;
  }
};

}  // namespace stridec::fourier
