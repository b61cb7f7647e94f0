// Trigonometric functions and their inverses.
#include "compiler/codegen/math_functions.h"

namespace stridec::codegen {
namespace {

constexpr MathFunction kFunctions[] = {
    // ---- trigonometry: x = k pi/2 + r. For large |x| by the method of Payne and Hanek: the relevant bits
    // of 2/pi, in integer arithmetic.
    {"big_trig", "", "", R"(
static const u64 sd_two_over_pi[] = {0xa2f9836e4e441529ul, 0xfc2757d1f534ddc0ul, 0xdb6295993c439041ul, 0xfe5163abdebbc561ul, 0xb7246e3a424dd2e0ul, 0x06492eea09d1921cul, 0xfe1deb1cb129a73eul, 0xe88235f52ebb4484ul, 0xe99c7026b45f7e41ul, 0x3991d639835339f4ul, 0x9c845f8bbdf9283bul, 0x1ff897ffde05980ful, 0xef2f118b5a0a6d1ful, 0x6d367ecf27cb09b7ul, 0x4f463f669e5fea2dul, 0x7527bac7ebe5f17bul, 0x3d0739f78a5292eaul, 0x6bfb5fb11f8d5d08ul, 0x56033046fc7b6babul, 0xf0cfbc209af4361dul};
static __attribute__((noinline)) f64 sd_big_trig(f64 x, i64* quadrant) {
  const u64 bits = __builtin_bit_cast(u64, x) & ~(1ul << 63);
  *quadrant = 0;
  if (bits >= 0x7ff0000000000000ul) return __builtin_nan("");
  const int e = (int)(bits >> 52) - 1075;  // |x| = m 2^e
  const u64 m = (bits & 0xffffffffffffful) | 1ul << 52;
  const int p = e > 2 ? e - 2 : 0;  // bits of 2/pi before this one contribute multiples of 4
  u64 w[3];
  for (int i = 0; i < 3; ++i) {
    const int at = p / 64 + i, by = p % 64;
    w[i] = by ? sd_two_over_pi[at] << by | sd_two_over_pi[at + 1] >> (64 - by) : sd_two_over_pi[at];
  }
  const unsigned __int128 a = (unsigned __int128)m * w[2], b = (unsigned __int128)m * w[1] + (u64)(a >> 64), c = (unsigned __int128)m * w[0] + (u64)(b >> 64);
  const u64 v[4] = {(u64)(c >> 64), (u64)c, (u64)b, (u64)a};  // |x| 2/pi = v 2^(e - p - 192)
  const int left = 62 - p + e;  // the shift that leaves the integer's two low bits on top
  u64 hi, lo;
  if (left < 64) {
    hi = v[0] << left | (left ? v[1] >> (64 - left) : 0);
    lo = v[1] << left | (left ? v[2] >> (64 - left) : 0);
  } else {
    hi = v[1] << (left - 64) | (left > 64 ? v[2] >> (128 - left) : 0);
    lo = v[2] << (left - 64) | (left > 64 ? v[3] >> (128 - left) : 0);
  }
  i64 q = (i64)(hi >> 62);
  const u64 top = hi << 2 | lo >> 62, low = lo << 2;
  q += (i64)(top >> 63);  // rounds to nearest, so that the fraction is signed
  f64 r = ((f64)(i64)top * 0x1p-64 + (f64)low * 0x1p-128) * 0x1.921fb54442d18p+0;
  *quadrant = x < 0 ? -q : q;
  return x < 0 ? -r : r;
}
)"},
    {"trig", "f64", "big_trig.f64!1", R"(
static inline f64@ sd_trig(f64@ x, i64@* quadrant) {
  f64@ n = x * 0.63661977236758138 + $MAGIC;
  i64@ k = __builtin_bit_cast(i64@, n) - $MAGICBITS;
  n -= $MAGIC;
  f64@ r = x - n * 1.57079632673412561416626;
  r = r - n * 6.077100506303965976595549e-11;
  r = r - n * 2.022266248711166455795996e-21;
  $SLOW
  *quadrant = k;
  return r;
}
)"},
    {"trig", "f32", "wide.f32 trig.f64", R"(
static inline f32@ sd_trig(f32@ x, i32@* quadrant) {
  i64@ k;
  f64@ r = sd_trig(sd_wide(x), &k);
  *quadrant = $C(k, i32@);
  return sd_thin(r);
}
)"},
    {"sincos", "", "fma trig", R"(
static inline $F@ sd_sin_poly($F@ r) {
  $F@ z = r * r, q = $P(z, $SIN_Q);
  return sd_fma(r * z, q, r);
}
static inline $F@ sd_cos_poly($F@ r) {
  $F@ z = r * r, q = $P(z, $COS_Q);
  return 1 - sd_fma(z * z, -q, 0.5$x * z);
}
)"},
    {"sin", "", "sincos", R"(
static inline $F@ sd_sin($F@ x) {
  $I@ k;
  $F@ r = sd_trig(x, &k), s = sd_sin_poly(r), c = sd_cos_poly(r);
  $F@ y = (k & 1) != 0 ? c : s;
  y = (k & 2) != 0 ? -y : y;
  return x == 0 ? x : y;
}
)"},
    {"cos", "", "sincos", R"(
static inline $F@ sd_cos($F@ x) {
  $I@ k;
  $F@ r = sd_trig(x, &k), s = sd_sin_poly(r), c = sd_cos_poly(r);
  $F@ y = (k & 1) != 0 ? s : c;
  return ((k + 1) & 2) != 0 ? -y : y;
}
)"},
    {"tan", "", "sincos", R"(
static inline $F@ sd_tan($F@ x) {
  $I@ k;
  $F@ r = sd_trig(x, &k), s = sd_sin_poly(r), c = sd_cos_poly(r);
  $F@ y = (k & 1) != 0 ? -c / s : s / c;
  return x == 0 ? x : y;
}
)"},
    // (atan x - x) / x^3 in x^2 below tan(pi/8)
    {"atan", "f64", "fma signed", R"(
static inline f64@ sd_atan(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), b = a > 1 ? 1 / a : a;
  f64@ t = b > 0.41421356237309503 ? (b - 1) / (b + 1) : b, z = t * t;
  f64@ q = $P(z, -0.33333333333333331, 0.19999999999999801, -0.14285714285658824, 0.11111111105057569, -0.090909087486352319, 0.076922962344915136, -0.06666422364033206, 0.058789000323429833, -0.052302411507893998, 0.045506220391755364, -0.034545610104858494, 0.016258132064979208);
  f64@ low = b > 0.41421356237309503 ? (f64@)3.061616997868382943e-17 : (f64@)0;
  f64@ y = sd_fma(t * z, q, low) + t;
  y = b > 0.41421356237309503 ? 0.78539816339744827900 + y : y;
  y = a > 1 ? 1.57079632679489655800 - (y - 6.123233995736765886e-17) : y;
  return a != a ? a : sd_signed(y, x);
}
)"},
    // (asin x - x) / x^3 in x^2 up to 1/2
    {"asin_poly", "f64", "fma", R"(
static inline f64@ sd_asin_poly(f64@ x, f64@ z) {
  f64@ q = $P(z, 0.16666666666666666, 0.075000000000001191, 0.044642857142550188, 0.030381944475693704, 0.022372157435623815, 0.017352816768546473, 0.013963775787848137, 0.011566511821890942, 0.0096214027473448295, 0.0093221015010827735, 0.0030350071727267623, 0.019579201619744684, -0.019277545928584557, 0.029635026263548549);
  return sd_fma(x * z, q, x);
}
)"},
    {"asin", "f64", "asin_poly signed", R"(
static inline f64@ sd_asin(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), h = 0.5 * (1 - a);
  f64@ z = a > 0.5 ? h : a * a, t = a > 0.5 ? __builtin_elementwise_sqrt(h) : a;
  f64@ p = sd_asin_poly(t, z);
  f64@ y = a > 0.5 ? 1.57079632679489655800 - (2 * p - 6.123233995736765886e-17) : p;
  return a <= 1 ? sd_signed(y, x) : (f64@)$NAN;
}
)"},
    {"acos", "f64", "asin_poly", R"(
static inline f64@ sd_acos(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), h = 0.5 * (1 - a);
  f64@ z = a > 0.5 ? h : a * a, t = a > 0.5 ? __builtin_elementwise_sqrt(h) : x;
  f64@ p = sd_asin_poly(t, z);
  f64@ mid = 1.57079632679489655800 - (p - 6.123233995736765886e-17);
  f64@ far = x > 0 ? 2 * p : 3.14159265358979311600 - (2 * p - 1.2246467991473531772e-16);
  return a <= 1 ? (a > 0.5 ? far : mid) : (f64@)$NAN;
}
)"},
    {"atan2", "f64", "atan signed", R"(
static inline f64@ sd_atan2(f64@ y, f64@ x) {
  f64@ ay = __builtin_elementwise_abs(y), ax = __builtin_elementwise_abs(x);
  f64@ q = ay / ax;
  q = ((ay == $INF) & (ax == $INF)) ? (f64@)1 : q;
  q = ((ay == 0) & (ax == 0)) ? (f64@)0 : q;
  f64@ r = sd_atan(q);
  u64@ sign = __builtin_bit_cast(u64@, x) >> 63;
  r = (sign != 0ul) ? 3.14159265358979311600 - (r - 1.2246467991473531772e-16) : r;
  return ((x != x) | (y != y)) ? x + y : sd_signed(r, y);
}
)"},
};

}  // namespace

std::span<const MathFunction> trigonometric_functions() { return kFunctions; }

}  // namespace stridec::codegen
