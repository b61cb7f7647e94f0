// Chebyshev series of the smooth parts of the functions, fitted by tests/fit_chebyshev.py: near 0 what the
// logarithmic and odd factors leave, and far from it the amplitude and the phase, as functions of 1 / x.
#include "compiler/ops/composite/bessel.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "compiler/ops/composite/chebyshev.h"

namespace stridec::ops {
namespace {

using graph::OpKind;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// J and Y: near up to 8 in x^2 / 32 - 1, far in 128 / x^2 - 1.
struct Oscillation {
  std::span<const double> first, second;  // of J, and of Y less 2 / pi J log(x)
  std::span<const double> cosine, sine;   // P and x Q in sqrt(2 / (pi x)) (P cos(t) - Q sin(t))
};
constexpr double kNear = 8;
constexpr double kJ0[] = {0.15772797147489012,     -0.0087234423528522211,  0.2651786132033368,
                          -0.37009499387264977,    0.15806710233209725,     -0.034893769411408884,
                          0.0048191800694676046,   -0.00046062616620627504, 3.2460328821005083e-05,
                          -1.7619469077621507e-06, 7.6081635924187821e-08,  -2.6792535305576728e-09,
                          7.8486963144794648e-11,  -1.9438346867370164e-12, 4.1253205956343741e-14,
                          -7.5885081254475459e-16, 1.2218515873961411e-17};
constexpr double kJ1[] = {
    0.081044846325658115,   -0.14897514506765211,    0.16099926235720971,    -0.08268049176681791,
    0.022213639654966037,   -0.0036469406007692759,  0.0004050337728354822,  -3.2555548668572587e-05,
    1.9858774049915165e-06, -9.5219847567504361e-08, 3.6871337590971481e-09, -1.178026622695885e-10,
    3.1601545803480032e-12, -7.2217552396517734e-14, 1.4232144003513942e-15, -2.4441972916190464e-17};
constexpr double kY0[] = {-0.033146113203284942,   -0.27447430552974528,   0.17903431407718265,
                          0.26156734625504663,     -0.17730201278114358,   0.04719668959576339,
                          -0.0072879624795520789,  0.0007531135932577742,  -5.6320791410569873e-05,
                          3.2065325376548008e-06,  -1.44072332740187e-07,  5.2487947873305158e-09,
                          -1.5837552541812015e-10, 4.0263308183061204e-12, -8.7473412033107693e-14,
                          1.6434898714919468e-15,  -2.6977881152566837e-17};
constexpr double kY1[] = {
    0.0025380132357417816,   -0.016087173047668751,  -0.095912045360830742,   0.084451972596523456,
    -0.028328123944594365,   0.0052898975441671133,  -0.0006414551451326356,  5.5059828733387439e-05,
    -3.5380800186893499e-06, 1.7707804556154404e-07, -7.1105500498992796e-09, 2.3443379059115162e-10,
    -6.4651518414115946e-12, 1.51429151205002e-13,   -3.0511859694473254e-15, 5.3466803857286703e-17};
constexpr double kP0[] = {0.99946034934751871,     -0.00053652204681321172, 3.0751847875194745e-06,
                          -5.1705945376060975e-08, 1.6306464635151382e-09,  -7.8640913772370698e-11,
                          5.1682623873491928e-12,  -4.3045788699253914e-13, 4.3265957431549404e-14,
                          -5.0690340959352359e-15, 6.7480722157338734e-16,  -1.0011513723467786e-16,
                          1.6305919233744186e-17};
constexpr double kP1[] = {1.0009030408600137,      0.00089898983308594083,  -3.9872843004889084e-06,
                          6.1776339606442988e-08,  -1.8718907491063067e-09, 8.8168986595823391e-11,
                          -5.7048636403956448e-12, 4.699195515230542e-13,   -4.6842237839904895e-14,
                          5.4526748960447171e-15,  -7.2211808422740179e-16, 1.0667689114335412e-16,
                          -1.7312313216116335e-17};
constexpr double kQ0[] = {-0.12444683684269607,    0.00054708159540893195,  -5.9315987288485175e-06,
                          1.4377965798375193e-07,  -5.8175327494930561e-09, 3.3760975237349908e-10,
                          -2.5653979367973079e-11, 2.404916100281365e-12,   -2.6690625482579414e-13,
                          3.4041800321963686e-14,  -4.8799441053120397e-15, 7.7297031762426054e-16,
                          -1.3348852171502517e-16, 2.4865952389390515e-17,  -4.9528926298865157e-18};
constexpr double kQ1[] = {0.37422229655628259,     -0.00077021788393256637, 7.3108922063643636e-06,
                          -1.6767825107266739e-07, 6.5833546621204433e-09,  -3.7490909505415562e-10,
                          2.8121750359748866e-11,  -2.61145253946232e-12,   2.8774212663332235e-13,
                          -3.6490019160618379e-14, 5.2066263662267069e-15,  -8.2153180254585947e-16,
                          1.4141084390211833e-16,  -2.6267615898385291e-17, 5.2192649196714085e-18};
constexpr Oscillation kOscillations[] = {{kJ0, kY0, kP0, kQ0}, {kJ1, kY1, kP1, kQ1}};

// P cos(t) - Q sin(t), or P sin(t) + Q cos(t), times the amplitude, for x >= 8; t = x - (2 order + 1) pi / 4.
Term oscillation(const Oscillation& table, Term x, int order, bool second) {
  const Term v = square(divide_into(kNear, x)) * 2.0 - 1.0;
  const Term p = chebyshev_sum(table.cosine, v), q = chebyshev_sum(table.sine, v) / x;
  const Term sine = apply(OpKind::kSin, x), cosine = apply(OpKind::kCos, x);
  // sqrt(2) times the cosine and the sine of t.
  const Term c = order == 0 ? cosine + sine : sine - cosine;
  const Term s = order == 0 ? sine - cosine : -(sine + cosine);
  return (second ? p * s + q * c : p * c - q * s) * (rsqrt(x) * std::numbers::inv_sqrtpi);
}
Term near_j(const Oscillation& table, Term x, int order) {
  const Term sum = chebyshev_sum(table.first, square(x) * (1.0 / 32) - 1.0);
  return order == 0 ? sum : sum * x;
}

}  // namespace

Term bessel_j(Term x, int order) {
  const Oscillation& table = kOscillations[order];
  const Term size = abs(x), low = less(size, kNear);
  const Term inside = near_j(table, select(low, x, 0), order);
  const Term far = oscillation(table, select(low, kNear, size), order, false);
  return select(low, inside, order == 1 ? select(less(x, 0), -far, far) : far);
}

Term bessel_y(Term x, int order) {
  const Oscillation& table = kOscillations[order];
  const Term low = less(x, kNear), inside = select(logical_and(low, greater(x, 0)), x, 1);
  const Term rest = chebyshev_sum(table.second, square(inside) * (1.0 / 32) - 1.0);
  Term near = near_j(table, inside, order) * log(inside);
  if (order == 1) near = near - divide_into(1, inside);
  near = near * (2 / std::numbers::pi) + (order == 0 ? rest : rest * inside);
  const Term out = select(low, near, oscillation(table, select(low, kNear, x), order, true));
  return select(less(x, 0), kNan, select(equal(x, 0), -kInf, out));
}

// The power series where it has not too many terms, and the asymptotic one.
Term scaled_bessel_i(Term x, int order) {
  constexpr double kSwitch = 24;
  constexpr int kTerms = 48, kAsymptotic = 16;
  const Term a = abs(x), near = less(a, kSwitch);
  const Term small = select(near, a, 1), q = square(small * 0.5);
  Term sum = number_like(x, 1);
  for (int k = kTerms; k >= 1; --k) sum = q * sum / static_cast<double>(k * (k + order)) + 1;
  if (order == 1) sum = sum * small * 0.5;
  const Term large = select(near, kSwitch, a), r = divide_into(1, large * 8);
  const double mu = 4. * order * order;
  Term tail = number_like(x, 1);
  for (int k = kAsymptotic; k >= 1; --k) tail = r * tail * (-(mu - std::pow(2 * k - 1, 2)) / k) + 1;
  const Term out = select(near, sum * exp(-small), tail / sqrt(large * (2 * std::numbers::pi)));
  return order == 1 ? select(less(x, 0), -out, out) : out;
}

namespace {

// K: near up to 2 in x^2 / 2 - 1, far in 4 / x - 1.
constexpr double kK0Near[] = {-0.26766369661695139,   0.3442898999246285,     0.035979936515361501,
                              0.001264615411446926,   2.2862121031194519e-05, 2.5347910790261494e-07,
                              1.9045163772202091e-09, 1.0349695257633625e-11, 4.2598161427910826e-14,
                              1.3744654358807508e-16};
constexpr double kK1Near[] = {0.76265011366947388,    -0.35315596077654487,    -0.12261118082265715,
                              -0.0069757238596398641, -0.0001730288957513052,  -2.4334061415659684e-06,
                              -2.213387630734726e-08, -1.4114883926335278e-10, -6.6669016941993295e-13,
                              -2.427449850519366e-15};
constexpr double kK0Far[] = {
    1.2201515410329777,     -0.031448101311964502,   0.0015698838857300533,  -0.00012849549581627802,
    1.39498137188765e-05,   -1.8317555227191195e-06, 2.7668136394450149e-07, -4.6604898976879478e-08,
    8.5740340174142253e-09, -1.6975345093890614e-09, 3.5773972814003283e-10, -7.9574892444773965e-11,
    1.8559491149549264e-11, -4.5145978833745193e-12, 1.1403405882073441e-12, -2.9800969231481784e-13,
    8.0328907750683746e-14, -2.2275133267462965e-14, 6.3400764762766461e-15, -1.8485933779209071e-15,
    5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17};
constexpr double kK1Far[] = {
    1.3603130952422213,      0.10392373657681724,    -0.0028578168596227792,  0.00019521551847135162,
    -1.936197974166083e-05,  2.406484947837217e-06,  -3.5019606030878126e-07, 5.7410841254500495e-08,
    -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.2183151876053146e-11,
    -2.1299678384277909e-11, 5.1396396734823432e-12, -1.2891739609498229e-12, 3.3484196660522431e-13,
    -8.9767051820101463e-14, 2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
    -6.0570472706430177e-16, 1.8380935752430455e-16, -5.6894628491936484e-17, 1.7940510478863572e-17};

// I for |x| <= 2.
Term small_bessel_i(Term x, int order) {
  constexpr int kTerms = 14;
  const Term q = square(x * 0.5);
  Term sum = number_like(x, 1);
  for (int k = kTerms; k >= 1; --k) sum = q * sum / static_cast<double>(k * (k + order)) + 1;
  return order == 0 ? sum : sum * x * 0.5;
}

}  // namespace

Term scaled_bessel_k(Term x, int order) {
  const Term low = less(x, 2), inside = select(logical_and(low, greater(x, 0)), x, 1);
  const Term rest =
      chebyshev_sum(order == 0 ? std::span<const double>(kK0Near) : kK1Near, square(inside) * 0.5 - 1.0);
  const Term product = small_bessel_i(inside, order) * log(inside * 0.5);
  const Term near = (order == 0 ? rest - product : rest / inside + product) * exp(inside);
  const Term large = select(low, 2, x);
  const Term far =
      chebyshev_sum(order == 0 ? std::span<const double>(kK0Far) : kK1Far, divide_into(4, large) - 1.0) *
      rsqrt(large);
  return select(less(x, 0), kNan, select(equal(x, 0), kInf, select(low, near, far)));
}

Term spherical_bessel_j0(Term x) {
  const Term infinite = apply(OpKind::kIsInf, x), zero = equal(x, 0);
  const Term inside = select(logical_or(infinite, zero), 1, x);
  return select(infinite, 0, select(zero, 1, apply(OpKind::kSin, inside) / inside));
}

namespace {

// Ai: between -5 and 2 in (x + 1.5) / 3.5. Beyond, with z = 2 / 3 |x|^1.5: the factor of exp(-z) in
// 2 z(2) / z - 1, and of the cosine and sine of z - pi / 4 in 2 (z(5) / z)^2 - 1.
constexpr double kAiryLow = -5, kAiryHigh = 2;
constexpr double kAiryNear[] = {
    0.15168947628223672,     -0.0052286924084723654,  -0.0071830075633421229,  -0.27500858251700783,
    0.15267285652736612,     0.11299722901833571,     -0.12930163519980795,    0.021717950423082666,
    0.024911850702736413,    -0.014335857421895731,   0.00069668945163959802,  0.0019743989335290189,
    -0.00072303939722521992, -1.6112414526177467e-05, 8.1332736732499388e-05,  -2.0775365813975462e-05,
    -1.6054762687164758e-06, 2.0560158255601387e-06,  -3.8255205172841781e-07, -4.9138705961841781e-08,
    3.514168642051892e-08,   -4.8463850108604963e-09, -8.8978120594222127e-10, 4.3297862486488079e-10,
    -4.4147455974393011e-11, -1.1096862995764342e-11, 4.024832028797832e-12,   -2.9609936249846454e-13,
    -1.0257635127287476e-13, 2.9205798768290242e-14,  -1.4619955511486232e-15, -7.3550505309176696e-16,
    1.6986548408182807e-16,  -5.0563208224652944e-18, -4.2234448483626644e-18};
constexpr double kAiryDecay[] = {
    0.98440530491715517,    -0.014792784850104199,   0.00073271774654267146, -6.1259542341782504e-05,
    6.8347669755726903e-06, -9.2372297354039818e-07, 1.436225340438052e-07,  -2.4893194223220961e-08,
    4.7097934400543277e-09, -9.5838637081127331e-10, 2.0745855483677591e-10, -4.737267332192277e-11,
    1.1336099808224236e-11, -2.8277067823193509e-12, 7.3207120951255979e-13, -1.9599793911089723e-13,
    5.4101162570683925e-14, -1.5356466802223836e-14, 4.4723403933000248e-15, -1.3338094674756683e-15,
    4.0665820464562309e-16, -1.2655832256452891e-16, 4.0151263340158709e-17, -1.2969972135960937e-17};
constexpr double kAiryP[] = {0.99967234154610052,     -0.00032554835610553221, 2.0697451559691191e-06,
                             -3.8909617364744242e-08, 1.3645959446950337e-09,  -7.2655634388666822e-11,
                             5.2346756290629072e-12,  -4.749669415821452e-13,  5.172156139604189e-14,
                             -6.5337252955452842e-15, 9.3392740727772093e-16,  -1.4823330512580455e-16,
                             2.5745988399644002e-17};
constexpr double kAiryQ[] = {
    0.069115280401605028,   -0.0003251060364586695,  3.9459777438663227e-06, -1.0689290905143409e-07,
    4.8003347189516169e-09, -3.0691067169997637e-10, 2.5517594369013928e-11, -2.6016067317524341e-12,
    3.1236668551191862e-13, -4.2903251712839485e-14, 6.5967105959774347e-15, -1.1168332160416879e-15,
    2.0551350158850327e-16, -4.0680056098438254e-17, 8.589182631392619e-18,  -1.921018818902054e-18};
Term airy_argument(Term x) { return x * sqrt(x) * (2.0 / 3); }
double airy_argument(double x) { return x * std::sqrt(x) * 2 / 3; }

Term airy_decay(Term x) {
  const Term z = airy_argument(x), infinite = apply(OpKind::kIsInf, z);
  const Term v = divide_into(2 * airy_argument(kAiryHigh), z) - 1.0;
  return select(infinite, 0,
                chebyshev_sum(kAiryDecay, v) * exp(-z) * rsqrt(sqrt(x)) * (std::numbers::inv_sqrtpi / 2));
}
Term airy_oscillation(Term x) {  // of Ai(-x)
  const Term z = airy_argument(x), v = square(divide_into(airy_argument(-kAiryLow), z)) * 2.0 - 1.0;
  const Term sine = apply(OpKind::kSin, z), cosine = apply(OpKind::kCos, z);
  const Term p = chebyshev_sum(kAiryP, v), q = chebyshev_sum(kAiryQ, v) / z;
  return (p * (cosine + sine) + q * (sine - cosine)) * rsqrt(sqrt(x)) *
         (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

}  // namespace

Term airy_ai(Term x) {
  const Term high = greater(x, kAiryHigh), low = less(x, kAiryLow);
  const Term inside = select(logical_or(high, low), 0, x);
  const Term near = chebyshev_sum(kAiryNear, (inside + 1.5) * (1 / 3.5));
  const Term far = airy_decay(select(high, x, kAiryHigh));
  return select(high, far, select(low, airy_oscillation(select(low, -x, -kAiryLow)), near));
}

}  // namespace stridec::ops
