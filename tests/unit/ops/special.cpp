// Special functions against values of 40 digits (mpmath), at both sides of the limits of their
// approximations.
#include "compiler/ops/composite/special.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compiler/ops/composite/bessel.h"
#include "compiler/ops/composite/incomplete_gamma.h"
#include "compiler/ops/composite/integers.h"
#include "compiler/ops/composite/orthogonal.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostTensor f64(const std::vector<double>& values) {
  return tensor(DType::kF64, {static_cast<int64_t>(values.size())}, values);
}

struct Values {
  const char* name;
  Term (*function)(Term x);
  std::vector<double> x, y;
};
void check_values(const Values& v, double tolerance) {
  check({.name = v.name,
         .inputs = {f64(v.x)},
         .build = [&](Builder& b, const Ids& in) { return Ids{v.function(Term(b, in[0]))}; },
         .expected = {f64(v.y)},
         .tolerance = tolerance,
         .symbolic = false});
}

}  // namespace

TEST_CASE("special functions: values") {
  const Values kValues[] = {
      {"bessel_j(x, 0)",
       [](Term x) { return ops::bessel_j(x, 0); },
       {0.0, 1e-05, -2.5, 7.99, 8.0, 8.01, -30.5, 1000.0},
       {1.0, 0.999999999975, -0.048383776468198, 0.17399001312793258, 0.1716508071375539, 0.16929736911054297,
        -0.01938975451776215, 0.024786686152420176}},
      {"bessel_j(x, 1)",
       [](Term x) { return ops::bessel_j(x, 1); },
       {0.0, 1e-05, -2.5, 7.99, 8.0, -30.5, 1000.0},
       {0.0, 4.9999999999375e-06, -0.49709410246427405, 0.23320071425350178, 0.23463634685391463,
        0.14349430015097095, 0.004728311907089524}},
      {"bessel_y(x, 0)",
       [](Term x) { return ops::bessel_y(x, 0); },
       {1e-05, 0.7, 2.5, 7.99, 8.01, 30.5, 1000.0},
       {-7.40316028370197, -0.19066492933739512, 0.4980703596152319, 0.22192874178576452, 0.22508990929357914,
        -0.14315731617410765, 0.0047159179776228135}},
      {"bessel_y(x, 1)",
       [](Term x) { return ops::bessel_y(x, 1); },
       {1e-05, 0.7, 2.5, 7.99, 8.01, 30.5, 1000.0},
       {-63661.97727536548, -1.1032498719076334, 0.1459181379667858, -0.16048695141166464,
        -0.15562145403809824, 0.017046142883876455, -0.024784331292351778}},
      {"scaled_bessel_i(x, 0)",
       [](Term x) { return ops::scaled_bessel_i(x, 0); },
       {0.0, 1e-05, -2.5, 15.9, 16.1, -23.9, 24.1, 200.0},
       {1.0, 0.9999900000749996, 0.27004644161220276, 0.10086511011538159, 0.10022619143999299,
        0.08204124995496269, 0.08169641631699674, 0.028227159949111916}},
      {"scaled_bessel_i(x, 1)",
       [](Term x) { return ops::scaled_bessel_i(x, 1); },
       {0.0, 1e-05, -2.5, 15.9, 16.1, -23.9, 24.1, 200.0},
       {0.0, 4.999950000312499e-06, -0.20658464953126657, 0.09763988596024711, 0.09706190574228293,
        -0.08030614731981038, 0.0799831060420831, 0.02815650339483292}},
      {"scaled_bessel_k(x, 0)",
       [](Term x) { return ops::scaled_bessel_k(x, 0); },
       {1e-05, 0.7, 1.99, 2.01, 12.0, 1000.0},
       {11.628973270095617, 1.3301236562420558, 0.8434939733789928, 0.8396557490908678, 0.3581948784890782,
        0.03962832160075422}},
      {"scaled_bessel_k(x, 1)",
       [](Term x) { return ops::scaled_bessel_k(x, 1); },
       {1e-05, 0.7, 1.99, 2.01, 12.0, 1000.0},
       {100000.99994435512, 2.1150113128480523, 1.0367396067608632, 1.0302428743356034, 0.37283175336970986,
        0.03964813081296021}},
      {"airy_ai(x)",
       [](Term x) { return ops::airy_ai(x); },
       {-30.5, -5.01, -4.99, -1.0, 0.0, 1.99, 2.01, 8.0, 60.0},
       {-0.004333637288742865, 0.34740160871220593, 0.3539450366842079, 0.5355608832923521,
        0.3550280538878172, 0.035458538570668385, 0.034396707129894226, 4.6922076160992316e-08,
        2.7831487094969354e-136}},
      {"spherical_bessel_j0(x)",
       [](Term x) { return ops::spherical_bessel_j0(x); },
       {0.0, 1e-09, -2.5, 40.0},
       {1.0, 1.0, 0.2393888576415826, 0.018627829011983718}},
      {"erfcx(x)",
       [](Term x) { return ops::erfcx(x); },
       {-5.0, -0.3, 0.0, 1e-05, 0.5, 1.0, 3.0, 20.0, 10000000000.0},
       {144009798674.66104, 1.4537492328427655, 1.0, 0.9999887163083283, 0.6156903441929259,
        0.427583576155807, 0.17900115118138996, 0.02817434874105132, 5.641895835477563e-11}},
      {"erfc(x)",
       [](Term x) { return ops::erfc(x); },
       {-5.0, -0.3, 0.0, 1e-05, 0.999, 1.0, 3.0, 20.0},
       {1.9999999999984626, 1.3286267594591274, 1.0, 0.9999887162083294, 0.15771472979350307,
        0.15729920705028513, 2.209049699858544e-05, 5.395865611607901e-176}},
      {"log_ndtr(x)",
       [](Term x) { return ops::log_ndtr(x); },
       {-30.0, -1.01, -0.99, 0.0, 3.0},
       {-454.3212439563432, -1.8563130623431785, -1.8258103178428124, -0.6931471805599453,
        -0.0013508099647481938}},
      {"lgamma(x)",
       [](Term x) { return ops::lgamma(x); },
       {-2.5, -0.3, 1e-05, 0.5, 3.25, 100.0},
       {-0.056243716497674054, 1.4648400508576025, 11.512919692895826, 0.5723649429247001, 0.9358019311087253,
        359.1342053695754}},
      {"digamma(x)",
       [](Term x) { return ops::digamma(x); },
       {-2.5, -0.3, 1e-05, 0.5, 3.25, 100.0},
       {1.103156640645243, 2.113309779635399, -100000.57719921567, -1.9635100260214235, 1.016990911068179,
        4.600161852738087}},
  };
  for (const Values& v : kValues) check_values(v, 1e-13);
}

TEST_CASE("special functions: small values keep their digits") {
  check_values({"erfc", [](Term x) { return ops::erfc(x) * 1e175; }, {20}, {0.5395865611607901}}, 1e-12);
  check_values({"airy", [](Term x) { return ops::airy_ai(x) * 1e136; }, {60}, {2.7831487094969356}}, 1e-12);
  check_values({"lower gamma",
                [](Term x) { return ops::incomplete_gamma(ops::number_like(x, 2), x).lower * 1e17; },
                {1e-8},
                {4.999999966666667}},
               1e-12);
}

TEST_CASE("special functions: zeros, infinities and NaN") {
  const std::vector<double> edges = {0, -1, kInf, kNan};
  check_values({"y0", [](Term x) { return ops::bessel_y(x, 0); }, {0, -1, kNan}, {-kInf, kNan, kNan}}, 0);
  check_values({"k1", [](Term x) { return ops::scaled_bessel_k(x, 1); }, edges, {kInf, kNan, 0, kNan}}, 0);
  check_values({"j0", [](Term x) { return ops::spherical_bessel_j0(x); }, {0, kInf, kNan}, {1, 0, kNan}}, 0);
  check_values({"ai", [](Term x) { return ops::airy_ai(x); }, {1e6, kInf, kNan}, {0, 0, kNan}}, 0);
  check_values({"erfcx", ops::erfcx, {kInf, -kInf, kNan}, {0, kInf, kNan}}, 0);
}

TEST_CASE("special functions: incomplete gamma functions") {
  struct Row {
    double a, x, p, q;
  };
  const Row kRows[] = {{0.001, 0.1, 0.9981780097379502, 0.0018219902620497243},
                       {0.5, 0.2, 0.4729107431344619, 0.5270892568655381},
                       {0.5, 1.9, 0.9487474171426304, 0.05125258285736951},
                       {0.5, 2.1, 0.9595760206630914, 0.04042397933690856},
                       {3.0, 2.9, 0.5540368014428194, 0.4459631985571806},
                       {3.0, 3.1, 0.5988368526853678, 0.40116314731463226},
                       {19.0, 40.0, 0.9999196959317849, 8.03040682151063e-05},
                       {19.9, 19.0, 0.44837001342853433, 0.5516299865714657},
                       {25.0, 25.5, 0.5659060650189364, 0.4340939349810637},
                       {25.0, 22.0, 0.28828052442293256, 0.7117194755770674},
                       {30.0, 17.0, 0.0027271501715228717, 0.9972728498284771},
                       {30.0, 43.0, 0.9844793177206587, 0.015520682279341369},
                       {400.0, 380.0, 0.15855070978429478, 0.8414492902157052},
                       {400.0, 470.0, 0.9995671285080558, 0.0004328714919441924},
                       {1e6, 1000500, 0.6915504757714972, 0.3084495242285028},
                       {2.0, 1e-08, 4.999999966666667e-17, 1.0},
                       {0, 0, kNan, kNan},
                       {0, 1, 1, 0},
                       {1, 0, 0, 1},
                       {kInf, 1, 0, 1},
                       {1, kInf, 1, 0},
                       {kInf, kInf, kNan, kNan},
                       {-1, 1, kNan, kNan},
                       {1, -1, kNan, kNan},
                       {kNan, 1, kNan, kNan},
                       {1, kNan, kNan, kNan}};
  std::vector<double> a, x, p, q;
  for (const Row& row : kRows) a.push_back(row.a), x.push_back(row.x), p.push_back(row.p), q.push_back(row.q);
  check({.name = "igamma",
         .inputs = {f64(a), f64(x)},
         .build =
             [](Builder& b, const Ids& in) {
               const auto g = ops::incomplete_gamma(Term(b, in[0]), Term(b, in[1]));
               return Ids{g.lower, g.upper};
             },
         .expected = {f64(p), f64(q)},
         .tolerance = 1e-13});
}

TEST_CASE("special functions: orthogonal polynomials") {
  using ops::Chebyshev;
  using ops::Recurrence;
  const auto both = [](const std::function<Term(Term, Term)>& f, const std::vector<double>& x,
                       const std::vector<double>& n, const std::vector<double>& y) {
    check({.name = "polynomial",
           .inputs = {f64(x), f64(n)},
           .build = [&](Builder& b, const Ids& in) { return Ids{f(Term(b, in[0]), Term(b, in[1]))}; },
           .expected = {f64(y)},
           .tolerance = 1e-12});
  };
  const std::vector<double> x = {0.3, -0.3, 0.999, -0.999, 1,    -1,  1.5, -1.5,
                                 0,   0.3,  0.3,   -0.7,   -1.5, 0.6, 0.6},
                            n = {0, 1, 2, 3, 20, 21, 5, 12, 7, 8, 9.9, 40, 3, -1, -3};
  both([](Term t, Term k) { return ops::chebyshev_polynomial(Chebyshev::kFirst, t, k); }, x, n,
       {1.0, -0.3, 0.9960019999999999, -0.991011996, 1.0, -1.0, 61.5, 51841.0, 0.0, -0.7622259199999999,
        0.3888276480000001, 0.9210506073164976, -9.0, 0.0, 0.0});
  both([](Term t, Term k) { return ops::chebyshev_polynomial(Chebyshev::kSecond, t, k); }, x, n,
       {1.0, -0.6, 2.992004, -3.980023992, 21.0, -22.0, 144.0, 121393.0, 0.0, -0.96579584,
        0.09908889600000012, 1.302781011087804, -21.0, 0.0, 0.0});
  both([](Term t, Term k) { return ops::chebyshev_polynomial(Chebyshev::kThird, t, k); }, x, n,
       {1.0, -1.6, 0.994004, -6.972027992, 1.0, -43.0, 89.0, 167761.0, 1.0, -0.2872294399999999, 1.064884736,
        1.8481101593325273, -29.0, 0.0, 0.0});
  both([](Term t, Term k) { return ops::chebyshev_polynomial(Chebyshev::kFourth, t, k); }, x, n,
       {1.0, 0.4, 4.990004, -0.988019992, 41.0, -1.0, 199.0, 75025.0, -1.0, -1.64436224, -0.8667069439999998,
        0.7574518628430805, -13.0, 0.0, 0.0});
  both([](Term t, Term k) { return ops::orthogonal_polynomial(Recurrence::kHermite, t, k); }, x, n,
       {1.0, -0.6, 1.9920039999999999, 4.011976008, 1107214478336.0, -1759326697472.0, -117.0, 940113.0, 0.0,
        576.6680601600001, 7010.2876584959995, 4.290978241354651e+29, -9.0, 0.0, 0.0});
  both([](Term t, Term k) { return ops::orthogonal_polynomial(Recurrence::kHermiteE, t, k); }, x, n,
       {1.0, -0.3, -0.0019990000000000016, 1.999997001, -161934624.0, 3804634784.0, -3.65625,
        9694.654541015625, 0.0, 68.88065361, 250.390686483, -9.290038427611203e+22, 1.125, 0.0, 0.0});
  both([](Term t, Term k) { return ops::orthogonal_polynomial(Recurrence::kLaguerre, t, k); }, x, n,
       {1.0, 1.3, -0.4989995, 5.6601686665, -0.16425881182779295, 872.0183122276188, 0.11640625,
        389.1747366624064, 1.0, -0.36948099551562497, -0.4179429975520089, 3700.9060212669474, 9.4375, 0.0,
        0.0});
  both([](Term t, Term k) { return ops::orthogonal_polynomial(Recurrence::kLegendre, t, k); }, x, n,
       {1.0, -0.3, 0.9970015, -0.9940074975, 1.0, -1.0, 33.08203125, 18151.005744695663, 0.0,
        -0.23907459101562498, 0.06370038175781252, 0.14834359558654803, -6.1875, 0.0, 0.0});
}

TEST_CASE("divisors of integers of each width") {
  for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU64}) {
    const bool sign = dtype != DType::kU8 && dtype != DType::kU64;
    const double s = sign ? -1 : 1;
    check({.name = "gcd",
           .inputs = {tensor(dtype, {6}, {0, 0, s * 12, 35, 100, 89}),
                      tensor(dtype, {6}, {0, s * 7, 18, 64, 75, 55})},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term p(b, in[0]), q(b, in[1]);
                 return Ids{ops::greatest_common_divisor(p, q), ops::greatest_common_divisor(q, p)};
               },
           .expected = {tensor(dtype, {6}, {0, 7, 6, 1, 25, 1}), tensor(dtype, {6}, {0, 7, 6, 1, 25, 1})}});
    check({.name = "lcm",
           .inputs = {tensor(dtype, {4}, {0, 0, s * 12, 5}), tensor(dtype, {4}, {0, s * 7, 18, 25})},
           .build =
               [](Builder& b, const Ids& in) {
                 return Ids{ops::least_common_multiple(Term(b, in[0]), Term(b, in[1]))};
               },
           .expected = {tensor(dtype, {4}, {0, 0, 36, 25})}});
  }
  const auto gcd = [](Builder& b, const Ids& in) {
    return Ids{ops::greatest_common_divisor(Term(b, in[0]), Term(b, in[1]))};
  };
  check({.name = "the least integer",
         .inputs = {tensor(DType::kI8, {2}, {-128, 100}), tensor(DType::kI8, {2}, {-128, -128})},
         .build = gcd,
         .expected = {tensor(DType::kI8, {2}, {-128, 4})}});
  check({.name = "no elements",
         .inputs = {tensor(DType::kI64, {0}, {}), tensor(DType::kI64, {0}, {})},
         .build = gcd,
         .expected = {tensor(DType::kI64, {0}, {})}});
  check({.name = "scalars",
         .inputs = {tensor(DType::kI64, {}, {4181}), tensor(DType::kI64, {}, {6765})},
         .build = gcd,
         .expected = {tensor(DType::kI64, {}, {1})}});
}

TEST_CASE("fractions and exponents of floats, down to subnormal ones") {
  struct Form {
    DType dtype;
    double smallest, fraction, exponent;  // a subnormal number
  };
  for (const Form& f :
       {Form{DType::kF64, std::ldexp(3, -1074), 0.75, -1072},
        Form{DType::kF32, std::ldexp(5, -149), 0.625, -146}, Form{DType::kF16, std::ldexp(3, -24), 0.75, -22},
        Form{DType::kBF16, std::ldexp(1, -126), 0.5, -125}}) {
    const std::vector<double> x = {0, -0.0, kInf, kNan, 1, -3, 5, 0.15625, f.smallest, -f.smallest};
    check({.name = "frexp",
           .inputs = {tensor(f.dtype, {10}, x)},
           .build =
               [](Builder& b, const Ids& in) {
                 const auto e = ops::mantissa_and_exponent(Term(b, in[0]));
                 return Ids{e.mantissa, e.exponent};
               },
           .expected = {tensor(f.dtype, {10},
                               {0, -0.0, kInf, kNan, 0.5, -0.75, 0.625, 0.625, f.fraction, -f.fraction}),
                        tensor(DType::kI32, {10}, {0, 0, 0, 0, 1, 2, 3, -2, f.exponent, f.exponent})},
           .tolerance = 0});
  }
}
