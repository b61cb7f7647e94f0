// Exponentials, logarithms, hyperbolic functions, the error function and powers.
#include "compiler/codegen/math_functions.h"

namespace stridec::codegen {
namespace {

constexpr MathFunction kFunctions[] = {
    {"fma", "", "", R"(
#ifdef __FMA__
static inline $F@ sd_fma($F@ a, $F@ b, $F@ c) { return __builtin_elementwise_fma(a, b, c); }
#else
static inline $F@ sd_fma($F@ a, $F@ b, $F@ c) { return a * b + c; }
#endif
)"},
    // The sign of y on the magnitude x >= 0.
    {"signed", "", "", R"(
static inline $F@ sd_signed($F@ x, $F@ y) {
  return __builtin_bit_cast($F@, __builtin_bit_cast($U@, x) | (__builtin_bit_cast($U@, y) & $SIGN));
}
)"},
    {"wide", "", "", R"(
static inline f64@ sd_wide(f32@ x) { return $C(x, f64@); }
static inline f32@ sd_thin(f64@ x) { return $C(x, f32@); }
)"},
    // p * 2^k for k between -1100 and 1100 (f32: -200 and 200), rounded once if the result is subnormal.
    {"scale", "", "", R"(
static inline $F@ sd_scale($F@ p, $I@ k) {
  $I@ h = k >> 1;
  $F@ a = __builtin_bit_cast($F@, (h + $BIAS) << $MANTISSA), b = __builtin_bit_cast($F@, (k - h + $BIAS) << $MANTISSA);
  return p * a * b;
}
)"},
    // p * 2^k for k between -1075 and 0 (f32: -150).
    {"scale_down", "", "", R"(
static inline $F@ sd_scale_down($F@ p, $I@ k) {
  return p * __builtin_bit_cast($F@, (k + ($BIAS + $HALF_WAY)) << $MANTISSA) * $DOWN;
}
)"},
    // x = k ln 2 + r with |r| <= ln 2 / 2.
    {"exp_reduce", "", "fma", R"(
static inline $F@ sd_exp_reduce($F@ x, $I@* k) {
  $F@ n = sd_fma(x, ($F@)$LOG2E, ($F@)$MAGIC);
  *k = __builtin_bit_cast($I@, n) - $MAGICBITS;
  n -= $MAGIC;
  return sd_fma(n, ($F@)-($LN2_LO), sd_fma(n, ($F@)-($LN2_HI), x));
}
)"},
    // exp for arguments between $EXP_MIN and $EXP_MAX, and NaN.
    {"exp_within", "", "exp_reduce scale", R"(
#if defined(__AVX512F__) && ` == 16 && $MANTISSA == 23
static inline f32@ sd_exp_within(f32@ x) {
  f32@ n = sd_fma(x, (f32@)$LOG2E, (f32@)$MAGIC) - $MAGIC;
  f32@ r = sd_fma(n, (f32@)-($LN2_LO), sd_fma(n, (f32@)-($LN2_HI), x));
  f32@ q = $P(r, $EXP_Q);
  return __builtin_ia32_scalefps512_mask(sd_fma(q * r, r, r) + 1, n, n, (u16)-1, 4);
}
#else
static inline $F@ sd_exp_within($F@ x) {
  $I@ k;
  $F@ r = sd_exp_reduce(x, &k);
  $F@ q = $P(r, $EXP_Q);
  return sd_scale(sd_fma(q * r, r, r) + 1, k);
}
#endif
)"},
    {"exp", "", "exp_within", R"(
static inline $F@ sd_exp($F@ x) {
  $F@ c = $EXP_MAX < x ? ($F@)$EXP_MAX : x;
  return sd_exp_within($EXP_MIN > c ? ($F@)$EXP_MIN : c);
}
)"},
    {"expm1", "", "exp_reduce scale", R"(
static inline $F@ sd_expm1($F@ x) {
  $F@ c = $EXP_MAX < x ? ($F@)$EXP_MAX : x;
  c = -60 > c ? ($F@)-60 : c;
  $I@ k;
  $F@ r = sd_exp_reduce(c, &k);
  $F@ q = $P(r, $EXP_Q);
  $F@ p = sd_fma(q * r, r, r);
  $F@ less = __builtin_bit_cast($F@, ($BIAS - k) << $MANTISSA);  // 2^-k; 0 in its place for large k
  less = k > $MANTISSA + 3 ? ($F@)0 : less;
  $F@ y = sd_scale(p + (1 - less), k);
  return k == 0 ? (x == 0 ? x : p) : y;
}
)"},
    {"log_split", "", "", R"(
static inline $F@ sd_log_split($F@ x, $I@* e) {  // x = 2^e m > 0, sqrt(1/2) <= m < sqrt(2)
  $F@ scaled = x < $TINY ? x * $TWO_M : x;
  $I@ u = __builtin_bit_cast($I@, scaled) - $SQRT_HALF;
  *e = (u >> $MANTISSA) - (x < $TINY ? ($I@)$MANTISSA : ($I@)0);
  return __builtin_bit_cast($F@, (u & $FRACTION) + $SQRT_HALF);
}
static inline $F@ sd_log_limits($F@ x, $F@ y) {
  y = x == $INF ? x : y;
  return x > 0 ? y : x == 0 ? ($F@)-$INF : ($F@)$NAN;
}
)"},
    // (log(1 + f) - f + f^2/2) / f^3
    {"log", "f32", "fma log_split", R"(
static inline f32@ sd_log(f32@ x) {
  i32@ e;
  f32@ f = sd_log_split(x, &e) - 1, n = $C(e, f32@);
  f32@ q = $P(f, 0.333333313f, -0.24999997f, 0.200007156f, -0.166678026f, 0.142490581f, -0.124256872f, 0.116854198f, -0.114797339f, 0.0697161183f);
  f32@ s = f * f;
  f32@ y = sd_fma(n, (f32@)$LN2_LO, f * s * q);
  y = f + sd_fma(s, (f32@)-0.5f, y);
  return sd_log_limits(x, sd_fma(n, (f32@)$LN2_HI, y));
}
)"},
    // s = f / (2 + f); (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2
    {"log", "f64", "fma log_split", R"(
static inline f64@ sd_log(f64@ x) {
  i64@ e;
  f64@ f = sd_log_split(x, &e) - 1, n = __builtin_bit_cast(f64@, e + $MAGICBITS) - $MAGIC;
  f64@ s = f / (2 + f), z = s * s, h = 0.5 * f * f;
  f64@ q = $P(z, 0.66666666666666663, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, 0.18181795547521137, 0.15386244737621665, 0.13268638369266825, 0.13088034850927555);
  f64@ y = sd_fma(s, h + z * q, n * $LN2_LO);
  return sd_log_limits(x, sd_fma(n, (f64@)$LN2_HI, f - (h - y)));
}
)"},
    // log(u) x / (u - 1) with u = 1 + x as rounded (Kahan): the rounding errors of u cancel.
    {"log1p", "", "log", R"(
static inline $F@ sd_log1p($F@ x) {
  $F@ u = 1 + x, d = u - 1;
  $F@ y = sd_log(u) * (x / d);
  y = d == 0 ? x : y;
  y = u == $INF ? u : y;
  return u == 0 ? ($F@)-$INF : y;
}
)"},
    {"sqrt", "", "", R"(
static inline $F@ sd_sqrt($F@ x) { return __builtin_elementwise_sqrt(x); }
)"},
    {"sigmoid", "", "exp_within", R"(
static inline $F@ sd_sigmoid($F@ x) {
  $F@ a = -__builtin_elementwise_abs(x), e = sd_exp_within($EXP_MIN > a ? ($F@)$EXP_MIN : a);
  return (x < 0 ? e : x != x ? x : ($F@)1) / (1 + e);
}
)"},
    // t / (t + 2) for t = e^2x - 1, which is accurate near 0; 1 for x >= 10.
    {"tanh", "f32", "exp_reduce signed", R"(
static inline f32@ sd_tanh(f32@ x) {
  f32@ a = __builtin_elementwise_abs(x), c = a > 10.0f ? (f32@)10.0f : a;
  i32@ k;
  f32@ r = sd_exp_reduce(c + c, &k), q = $P(r, $EXP_Q);
  f32@ power = __builtin_bit_cast(f32@, (k + $BIAS) << $MANTISSA), t = sd_fma(sd_fma(q * r, r, r), power, power - 1);
  return sd_signed(t / (t + 2), x);
}
)"},
    {"tanh", "f64", "expm1 signed", R"(
static inline f64@ sd_tanh(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), t = sd_expm1(-2 * a);
  return x == 0 ? x : sd_signed(-t / (2 + t), x);
}
)"},
    // x (1 / b + (b^2 - x^2) p(x^2) / q(x^2)) with b = 3.94: the closer x is to b, the less the quotient's
    // error matters. From 3.9192 on erf rounds to 1, and so does this formula up to its end point. With
    // 512-bit vectors, whose permutations look up a 16-lane table, erf(x) / x is instead a polynomial per
    // quarter of a power of two of x^2 + 1 below 16: one division would take as long as all of it. The
    // final multiplication is rounded: unrounded it is not quite 1 at the end, which a following addition
    // of -1 would expose.
    {"erf", "f32", "fma product", R"(
#if defined(__AVX512F__) && ` == 16
static inline f32@ sd_erf(f32@ x) {
  typedef int V __attribute__((vector_size(64)));
  static const f32@ c0 = {0.792599976f, 0.70953846f, 0.644070089f, 0.591555297f, 0.530165613f, 0.470131814f, 0.426012933f, 0.39211008f, 0.353531003f, 0.31622532f, 0.288674861f, 0.267261207f, 1.08307528f, 1.00188017f, 0.931540608f, 0.870334387f};
  static const f32@ c1 = {-0.375451148f, -0.293403178f, -0.233395472f, -0.18888016f, -0.283480853f, -0.203376293f, -0.153236911f, -0.120127276f, -0.176576242f, -0.126469642f, -0.0962226391f, -0.0763600767f, -0.349136472f, -0.301809609f, -0.262050211f, -0.228546262f};
  static const f32@ c2 = {0.191912174f, 0.139440835f, 0.102738917f, 0.0767945796f, 0.204038143f, 0.124440193f, 0.0802292377f, 0.0543990247f, 0.131666794f, 0.0757974684f, 0.0481013097f, 0.0327243879f, 0.103236571f, 0.0866039619f, 0.0728691146f, 0.0615029559f};
  static const f32@ c3 = {-0.0834640637f, -0.0581027195f, -0.0408643745f, -0.0290549677f, -0.142401397f, -0.0773219168f, -0.04415223f, -0.0265050139f, -0.107704088f, -0.0503130406f, -0.0266982671f, -0.0155801689f, -0.0243831631f, -0.0201148484f, -0.0166284535f, -0.0137763061f};
  static const f32@ c4 = {0.0307021588f, 0.0207942873f, 0.0141908983f, 0.00976363849f, 0.0910988599f, 0.0455633886f, 0.0237556137f, 0.0129424175f, 0.0916263089f, 0.0351827927f, 0.0156555846f, 0.00783342682f, 0.00471950555f, 0.00385208824f, 0.0031488908f, 0.00257815234f};
  static const f32@ c5 = {-0.00965304952f, -0.0064167087f, -0.00428993115f, -0.00288585108f, -0.0518116355f, -0.0244661141f, -0.0119424239f, -0.00604565768f, -0.0758097991f, -0.0246159751f, -0.00931410305f, -0.00401993934f, -0.000769453414f, -0.000623436703f, -0.000505711825f, -0.000410709938f};
  f32@ c = x > 3.8729825f ? (f32@)3.8729825f : x;
  c = c < -3.8729825f ? (f32@)-3.8729825f : c;
  u32@ t = __builtin_bit_cast(u32@, sd_fma(c, c, (f32@)1.0f));
  const V at = __builtin_bit_cast(V, t >> 21);
  f32@ r = __builtin_bit_cast(f32@, (t & 0x1fffffu) | 0x3f800000u) - 1.125f;
#define PICK(c) __builtin_bit_cast(f32@, __builtin_ia32_permvarsf512(c, at))
  f32@ p = sd_fma(sd_fma(sd_fma(PICK(c5), r, PICK(c4)), r, PICK(c3)), r, PICK(c2));
  p = sd_fma(sd_fma(p, r, PICK(c1)), r, PICK(c0));
#undef PICK
  return sd_product(c, p);
}
#else
static inline f32@ sd_erf(f32@ x) {
  f32@ c = x > 3.91920567f ? (f32@)3.91920567f : x;
  c = c < -3.91920567f ? (f32@)-3.91920567f : c;
  f32@ z = c * c;
  f32@ p = $P(z, 0.056338225f, 0.0074583637f, 0.0021024449f, 0.0001309153f, 1.1017981e-05f, 1.1443625e-08f);
  f32@ q = $P(z, 1.0f, 0.4980365f, 0.11395955f, 0.015392904f, 0.001287927f, 5.9790716e-05f);
  return sd_product(c, sd_fma(-c, c, (f32@)15.523601f) * p / q + 0.2538071f);
}
#endif
)"},
    // erf(x) / x - 1 in x^2 below 1; exp(x^2) erfc(x) (1 + 2 x) in (x - 3) / (x + 3) from 1 to 6
    {"erf", "f64", "exp signed", R"(
static inline f64@ sd_erf(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), z = x * x;
  f64@ q = $P(z, 0.12837916709551259, -0.37612638903183754, 0.11283791670955126, -0.026866170645131218, 0.0052239776254416736, -0.0008548327023403001, 0.00012055332978879483, -1.4925650236967501e-05, 1.6462110782018636e-06, -1.6365768648832071e-07, 1.4806027146128752e-08, -1.2277734486795524e-09, 9.3237235181530271e-11, -6.1967364287876997e-12, 2.8067128195611264e-13);
  f64@ c = a > 6.0 ? (f64@)6.0 : a, t = (c - 3) / (c + 3);
  f64@ g = $P(t, 1.2530080582697296, -0.1356211061245812, -0.04756229435345119, 0.12964515870276272, -0.11927366341527432, 0.068308027343913696, -0.02377051491964946, 0.0025293918171822392, 0.0018886903737323833, -0.00077983228836386951, -0.00010515993159353502, 0.00012509954900855641, 4.9504787846010923e-06, -2.0101981105263257e-05, -7.383747664959571e-07, 3.4754269674820294e-06, 3.8890927703211216e-07, -5.9558005394231793e-07, -2.0093369642003625e-07);
  f64@ big = 1 - sd_exp(-c * c) * g / (1 + 2 * c);
  return a < 1 ? sd_fma(x, q, x) : sd_signed(big, x);
}
)"},
    // exp(-x^2 / 2) R(|x|), and its complement to 1. R(a) = exp(a^2 / 2) erfc(a / sqrt(2)) / 2 is a
    // polynomial in a / (b + a) - 1/2, divided by b + a. The square is a pair hi + lo: the tail multiplies
    // its relative error by x^2 / 2.
    {"normal_cdf", "", "exp_reduce pair scale_down", R"(
static inline $F@ sd_normal_cdf($F@ x) {
  $F@ a = __builtin_elementwise_abs(x), c = a > $CDF_MAX ? ($F@)$CDF_MAX : a;
  $F@ low, square = sd_product(c, c, &low), y = -0.5$x * square;
  $F@ inverse = 1 / ($CDF_B + c), t = sd_fma(c, inverse, ($F@)-0.5$x);
#if defined(__AVX512F__) && ` == 16 && $MANTISSA == 23
  $F@ n = sd_fma(y, ($F@)$LOG2E, ($F@)$MAGIC) - $MAGIC;
  $F@ r = sd_fma(n, ($F@)-($LN2_LO), sd_fma(n, ($F@)-($LN2_HI), y));
#else
  $I@ k;
  $F@ r = sd_exp_reduce(y, &k);
#endif
  r = sd_fma(low, ($F@)-0.5$x, r);
  $F@ q = $P(r, $EXP_Q), g = $P(t, $CDF_R);
  $F@ p = (sd_fma(q * r, r, r) + 1) * (g * inverse);
#if defined(__AVX512F__) && ` == 16 && $MANTISSA == 23
  $F@ tail = __builtin_ia32_scalefps512_mask(p, n, n, (u16)-1, 4);
#else
  $F@ tail = sd_scale_down(p, k);
#endif
  return x > 0 ? 1 - tail : tail;
}
)"},
    {"sinh", "", "expm1 exp signed", R"(
static inline $F@ sd_sinh($F@ x) {
  $F@ a = __builtin_elementwise_abs(x), t = sd_expm1(a), w = sd_exp(0.5$x * a);
  $F@ y = a > 20 ? 0.5$x * w * w : 0.5$x * (t + t / (t + 1));
  return x == 0 ? x : sd_signed(y, x);
}
)"},
    {"cosh", "", "exp", R"(
static inline $F@ sd_cosh($F@ x) {
  $F@ a = __builtin_elementwise_abs(x), e = sd_exp(a), w = sd_exp(0.5$x * a);
  return a > 20 ? 0.5$x * w * w : 0.5$x * e + 0.5$x / e;
}
)"},
    {"asinh", "f64", "log1p signed", R"(
static inline f64@ sd_asinh(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), t = a * a;
  f64@ y = a > 0x1p28 ? sd_log(a) + $LN2 : sd_log1p(a + t / (1 + __builtin_elementwise_sqrt(1 + t)));
  return a < 0x1p-28 ? x : sd_signed(y, x);
}
)"},
    {"acosh", "f64", "log1p", R"(
static inline f64@ sd_acosh(f64@ x) {
  f64@ t = x - 1;
  f64@ y = x > 0x1p28 ? sd_log(x) + $LN2 : sd_log1p(t + __builtin_elementwise_sqrt(2 * t + t * t));
  return x < 1 ? (f64@)$NAN : y;
}
)"},
    {"atanh", "f64", "log1p signed", R"(
static inline f64@ sd_atanh(f64@ x) {
  f64@ a = __builtin_elementwise_abs(x), d = a + a;
  f64@ y = 0.5 * sd_log1p(d + d * a / (1 - a));
  y = a == 1 ? (f64@)$INF : a > 1 ? (f64@)$NAN : y;
  return a < 0x1p-28 ? x : sd_signed(y, x);
}
)"},
    // The results of pow for the special arguments of C's Annex F; p is |x|^y for all other arguments.
    {"pow_limits", "", "", R"(
static inline $F@ sd_pow_limits($F@ x, $F@ y, $F@ p) {
  $F@ a = __builtin_elementwise_abs(x), ay = __builtin_elementwise_abs(y), half = 0.5$x * y;
  p = a == 0 ? (y > 0 ? ($F@)0 : ($F@)$INF) : p;
  p = a == $INF ? (y > 0 ? ($F@)$INF : ($F@)0) : p;
  p = (a == 1) ? ($F@)1 : ay == $INF ? (((a > 1) == (y > 0)) ? ($F@)$INF : ($F@)0) : p;
  $U@ sign = __builtin_bit_cast($U@, x) >> ($MANTISSA + (sizeof($F) == 4 ? 8 : 11));
  p = ((sign != 0) & (__builtin_elementwise_trunc(y) == y) & (__builtin_elementwise_trunc(half) != half)) ? -p : p;
  p = ((x < 0) & (a != $INF) & (__builtin_elementwise_trunc(y) != y)) ? ($F@)$NAN : p;
  p = ((x != x) | (y != y)) ? x + y : p;
  return ((y == 0) | (x == 1)) ? ($F@)1 : p;
}
)"},
    {"pow", "f32", "wide.f32 log.f64 exp.f64 pow_limits", R"(
static inline f32@ sd_pow(f32@ x, f32@ y) {
  f64@ p = sd_exp(sd_wide(y) * sd_log(sd_wide(__builtin_elementwise_abs(x))));
  return sd_pow_limits(x, y, sd_thin(p));
}
)"},
    // Pairs hi + lo: products and sums with their rounding errors.
    {"pair", "", "", R"(
static inline $F@ sd_product($F@ a, $F@ b, $F@* low) {
  $F@ p = a * b;
#ifdef __FMA__
  *low = __builtin_elementwise_fma(a, b, -p);
#else
  $F@ ca = a * $SPLIT, ah = ca - (ca - a), al = a - ah, cb = b * $SPLIT, bh = cb - (cb - b), bl = b - bh;
  *low = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
  return p;
}
static inline $F@ sd_sum($F@ a, $F@ b, $F@* low) {
  $F@ s = a + b, v = s - a;
  *low = (a - (s - v)) + (b - v);
  return s;
}
)"},
    {"pow", "f64", "pair log_split exp pow_limits", R"(
static inline f64@ sd_pow(f64@ x, f64@ y) {
  f64@ a = __builtin_elementwise_abs(x);
  i64@ e;
  f64@ f = sd_log_split(a, &e) - 1, n = __builtin_bit_cast(f64@, e + $MAGICBITS) - $MAGIC;
  // s = f / (2 + f), z = s^2, both as pairs
  f64@ dl, d = sd_sum((f64@)2, f, &dl), s = f / d, pl, p = sd_product(s, d, &pl);
  f64@ sl = ((f - p) - pl - s * dl) / d;
  f64@ zl, z = sd_product(s, s, &zl);
  zl += 2 * s * sl;
  // log m = 2 s + 2/3 s^3 + s^5 q
  f64@ q = $P(z, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, 0.18181795547521137, 0.15386244737621665, 0.13268638369266825, 0.13088034850927555);
  f64@ cl, c = sd_product(s, z, &cl);
  cl += s * zl + sl * z;
  f64@ tl, t = sd_product(c, (f64@)0x1.5555555555555p-1, &tl);
  tl += c * 0x1.5555555555555p-55 + cl * 0x1.5555555555555p-1 + c * z * q;
  f64@ l1, h1 = sd_sum(2 * s, t, &l1), l2, h2 = sd_sum(n * $LN2_HI, h1, &l2);
  f64@ low = l2 + l1 + tl + 2 * sl + n * $LN2_LO;
  f64@ lh = h2 + low, ll = (h2 - lh) + low;
  // y log |x|
  f64@ ph, pr = sd_product(lh, y, &ph);
  ph += ll * y;
  f64@ w = pr > 710 ? (f64@)710 : pr;
  w = w < -746 ? (f64@)-746 : w;
  ph = w == pr ? ph : (f64@)0;
  i64@ k;
  f64@ r = sd_exp_reduce(w, &k) + ph;
  f64@ g = $P(r, $EXP_Q);
  return sd_pow_limits(x, y, sd_scale(sd_fma(g * r, r, r) + 1, k));
}
)"},
};

}  // namespace

std::span<const MathFunction> exponential_functions() { return kFunctions; }

}  // namespace stridec::codegen
