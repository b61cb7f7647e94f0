#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;

namespace {

Case unary_case(OpKind kind, const HostTensor& x, const std::function<double(double)>& f, DType result) {
  return {.name = cat(graph::name(kind), " of ", name(x.dtype)),
          .inputs = {x},
          .build = [kind](Builder& b, const std::vector<ValueId>& in) { return b.add(kind, {in[0]}); },
          .expected = {compute(result, x.shape, [&](const At& i) { return f(at(x, i)); })}};
}

Case binary_case(OpKind kind, const HostTensor& x, const HostTensor& y,
                 const std::function<double(double, double)>& f, DType result) {
  return {.name = cat(graph::name(kind), " of ", name(x.dtype)),
          .inputs = {x, y},
          .build = [kind](Builder& b, const std::vector<ValueId>& in) { return b.add(kind, {in[0], in[1]}); },
          .expected = {compute(result, broadcast(x.shape, y.shape),
                               [&](const At& i) { return f(at_broadcast(x, i), at_broadcast(y, i)); })}};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

}  // namespace

TEST_CASE("unary functions on floats") {
  struct Row {
    OpKind kind;
    double (*f)(double);
    double low, high;
  };
  const Row rows[] = {
      {OpKind::kNeg, [](double x) { return -x; }, -3, 3},
      {OpKind::kAbs, std::fabs, -3, 3},
      {OpKind::kSign, sign, -3, 3},
      {OpKind::kFloor, std::floor, -3, 3},
      {OpKind::kCeil, std::ceil, -3, 3},
      {OpKind::kTrunc, std::trunc, -3, 3},
      {OpKind::kRound, std::nearbyint, -3, 3},
      {OpKind::kSqrt, std::sqrt, 0, 9},
      {OpKind::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1, 9},
      {OpKind::kRcp, [](double x) { return 1 / x; }, 0.1, 9},
      {OpKind::kExp, std::exp, -3, 3},
      {OpKind::kExpm1, std::expm1, -1, 1},
      {OpKind::kLog, std::log, 0.1, 9},
      {OpKind::kLog1p, std::log1p, -0.5, 9},
      {OpKind::kSin, std::sin, -6, 6},
      {OpKind::kCos, std::cos, -6, 6},
      {OpKind::kTan, std::tan, -1, 1},
      {OpKind::kAsin, std::asin, -0.9, 0.9},
      {OpKind::kAcos, std::acos, -0.9, 0.9},
      {OpKind::kAtan, std::atan, -6, 6},
      {OpKind::kSinh, std::sinh, -3, 3},
      {OpKind::kCosh, std::cosh, -3, 3},
      {OpKind::kTanh, std::tanh, -3, 3},
      {OpKind::kAsinh, std::asinh, -3, 3},
      {OpKind::kAcosh, std::acosh, 1.1, 9},
      {OpKind::kAtanh, std::atanh, -0.9, 0.9},
      {OpKind::kErf, std::erf, -3, 3},
      {OpKind::kSigmoid, sigmoid, -6, 6},
  };
  for (const Row& row : rows)
    for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
      check(unary_case(row.kind, sample_in(dtype, {2, 5}, row.low, row.high), row.f, dtype));
}

TEST_CASE("functions on integers, bools and special numbers") {
  check(unary_case(OpKind::kNeg, sample(DType::kI32, {7}), [](double x) { return -x; }, DType::kI32));
  check(unary_case(OpKind::kAbs, sample(DType::kI8, {7}), [](double x) { return std::fabs(x); }, DType::kI8));
  check(unary_case(OpKind::kSign, sample(DType::kU8, {7}), sign, DType::kU8));
  check(unary_case(
      OpKind::kNot, sample(DType::kBool, {7}), [](double x) { return double(x == 0); }, DType::kBool));
  check(unary_case(OpKind::kBitNot, sample(DType::kU8, {7}), [](double x) { return 255 - x; }, DType::kU8));
  const double inf = std::numeric_limits<double>::infinity();
  const HostTensor odd = tensor(DType::kF32, {5}, {0, inf, -inf, std::nan(""), 1});
  check(unary_case(OpKind::kIsNan, odd, [](double x) { return double(std::isnan(x)); }, DType::kBool));
  check(unary_case(OpKind::kIsInf, odd, [](double x) { return double(std::isinf(x)); }, DType::kBool));
  check({.name = "the sign of -0 is 0, of which the reciprocal is positive",
         .inputs = {tensor(DType::kF32, {4}, {-0.0, 0, -2, std::nan("")})},
         .build =
             [](Builder& b, const std::vector<ValueId>& in) {
               return std::vector<ValueId>{
                   ops::divide_into(1, ops::apply(OpKind::kSign, ops::Term(b, in[0]))).id()};
             },
         .expected = {tensor(DType::kF32, {4}, {inf, inf, -1, std::nan("")})}});
}

TEST_CASE("binary functions broadcast as numpy does") {
  struct Row {
    OpKind kind;
    double (*f)(double, double);
    bool compares;
  };
  const Row rows[] = {
      {OpKind::kAdd, [](double x, double y) { return x + y; }, false},
      {OpKind::kSub, [](double x, double y) { return x - y; }, false},
      {OpKind::kMul, [](double x, double y) { return x * y; }, false},
      {OpKind::kMin, [](double x, double y) { return x < y ? x : y; }, false},
      {OpKind::kMax, [](double x, double y) { return x < y ? y : x; }, false},
      {OpKind::kEq, [](double x, double y) { return double(x == y); }, true},
      {OpKind::kNe, [](double x, double y) { return double(x != y); }, true},
      {OpKind::kLt, [](double x, double y) { return double(x < y); }, true},
      {OpKind::kLe, [](double x, double y) { return double(x <= y); }, true},
  };
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}},    {{}, {4}},
      {{}, {}},         {{0, 3}, {3}}, {{2, 1, 1}, {1, 0}}, {{1}, {1}}};
  for (const Row& row : rows)
    for (DType dtype : {DType::kF32, DType::kF16, DType::kF64, DType::kI8, DType::kI32, DType::kI64})
      for (const auto& [a, c] : shapes)
        check(binary_case(row.kind, sample(dtype, a, 1), sample(dtype, c, 2), row.f,
                          row.compares ? DType::kBool : dtype));
}

TEST_CASE("division, remainders, powers and bits") {
  const HostTensor a = tensor(DType::kI32, {8}, {7, -7, 7, -7, 0, 5, -5, 9}),
                   c = tensor(DType::kI32, {8}, {2, 2, -2, -2, 3, 0, 0, 3});
  check(binary_case(
      OpKind::kDiv, a, c, [](double x, double y) { return y == 0 ? 0 : std::trunc(x / y); }, DType::kI32));
  check(binary_case(
      OpKind::kRem, a, c, [](double x, double y) { return y == 0 ? 0 : std::fmod(x, y); }, DType::kI32));
  check(binary_case(
      OpKind::kMod, a, c, [](double x, double y) { return y == 0 ? 0 : x - y * std::floor(x / y); },
      DType::kI32));
  const HostTensor x = sample_in(DType::kF32, {3, 4}, 0.5, 4), y = sample_in(DType::kF32, {4}, -2, 2);
  check(binary_case(OpKind::kDiv, x, y, [](double p, double q) { return p / q; }, DType::kF32));
  check(binary_case(OpKind::kPow, x, y, [](double p, double q) { return std::pow(p, q); }, DType::kF32));
  check(binary_case(OpKind::kAtan2, y, x, [](double p, double q) { return std::atan2(p, q); }, DType::kF32));
  const HostTensor p = sample_in(DType::kU8, {9}, 0, 255), q = sample_in(DType::kU8, {9}, 0, 7, 2);
  auto bits = [](auto f) { return [f](double u, double v) { return double(f(int(u), int(v)) & 255); }; };
  check(binary_case(OpKind::kBitAnd, p, q, bits([](int u, int v) { return u & v; }), DType::kU8));
  check(binary_case(OpKind::kBitOr, p, q, bits([](int u, int v) { return u | v; }), DType::kU8));
  check(binary_case(OpKind::kBitXor, p, q, bits([](int u, int v) { return u ^ v; }), DType::kU8));
  check(binary_case(OpKind::kShl, p, q, bits([](int u, int v) { return u << v; }), DType::kU8));
  check(binary_case(OpKind::kShr, p, q, bits([](int u, int v) { return u >> v; }), DType::kU8));
  const HostTensor s = sample(DType::kBool, {4}, 1), t = sample(DType::kBool, {3, 1}, 2);
  check(binary_case(
      OpKind::kAnd, s, t, [](double u, double v) { return double(u != 0 && v != 0); }, DType::kBool));
  check(binary_case(
      OpKind::kOr, s, t, [](double u, double v) { return double(u != 0 || v != 0); }, DType::kBool));
  check(binary_case(
      OpKind::kXor, s, t, [](double u, double v) { return double((u != 0) != (v != 0)); }, DType::kBool));
}

TEST_CASE("select takes from either side") {
  const HostTensor c = sample(DType::kBool, {3, 1}), x = sample(DType::kF32, {4}),
                   y = sample(DType::kF32, {}, 3);
  check({.name = "select",
         .inputs = {c, x, y},
         .build = [](Builder& b, const auto& in) { return std::vector{ops::where(b, in[0], in[1], in[2])}; },
         .expected = {compute(DType::kF32, {3, 4}, [&](const At& i) {
           return at_broadcast(c, i) != 0 ? at_broadcast(x, i) : at_broadcast(y, i);
         })}});
}

TEST_CASE("casts between all kinds") {
  const DType all[] = {DType::kBool,   DType::kI4,  DType::kI8,   DType::kI16, DType::kI32,
                       DType::kI64,    DType::kU8,  DType::kU32,  DType::kU64, DType::kF8E4M3,
                       DType::kF8E5M2, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  for (DType from : all)
    for (DType to : all) {
      const HostTensor x = is_bool(from)
                               ? sample(from, {5})
                               : sample_in(from, {5}, is_signed(from) || is_float(from) ? -6 : 0, 6);
      check({.name = cat("cast ", name(from), " to ", name(to)),
             .inputs = {x},
             .build = [to](Builder& b, const auto& in) { return std::vector{ops::cast(b, in[0], to, true)}; },
             .expected = {compute(to, {5},
                                  [&](const At& i) {
                                    const double v = at(x, i);
                                    if (is_bool(to)) return double(v != 0);
                                    if (is_float(to)) return round_float(to, v, true);
                                    const IntegerRange range = integer_range(to);
                                    return std::min(std::max(std::trunc(v), double(range.lo)),
                                                    double(range.hi));
                                  })},
             .tolerance = 0});
    }
}

TEST_CASE("what is too large saturates in floats of 8 bits and is infinite in wider ones") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType to : {DType::kF8E4M3, DType::kF8E5M2, DType::kF16, DType::kBF16})
    for (bool saturate : {true, false}) {
      const bool stays = saturate && byte_size(to) == 1;
      check({.name = cat("large f32 to ", name(to)),
             .inputs = {tensor(DType::kF32, {4}, {infinity, -infinity, 3.4e38, 1})},
             .build = [&](Builder& b,
                          const auto& in) { return std::vector{ops::cast(b, in[0], to, saturate)}; },
             .expected = {tensor(to, {4},
                                 {round_float(to, infinity, stays), round_float(to, -infinity, stays),
                                  round_float(to, infinity, stays), 1})},
             .tolerance = 0});
    }
}

TEST_CASE("bitcasts keep the bytes") {
  auto bitcast = [](DType to) {
    return [to](Builder& b, const std::vector<ValueId>& in) {
      return b.add(OpKind::kBitcast, {in[0]}, {{"to", to}});
    };
  };
  HostTensor x = sample(DType::kF32, {5}), bits = x;
  bits.dtype = DType::kI32;
  check({.name = "f32 to i32", .inputs = {x}, .build = bitcast(DType::kI32), .expected = {bits}});
  check({.name = "i32 to f32",
         .inputs = {bits},
         .build = bitcast(DType::kF32),
         .expected = {x},
         .tolerance = 0});
  HostTensor flags = sample(DType::kBool, {6}), bytes = flags;
  bytes.dtype = DType::kU8;
  check({.name = "bool to u8", .inputs = {flags}, .build = bitcast(DType::kU8), .expected = {bytes}});
  check({.name = "u8 to bool", .inputs = {bytes}, .build = bitcast(DType::kBool), .expected = {flags}});
}

TEST_CASE("constants without elements are constants") {
  const HostTensor none = sample(DType::kF32, {0, 3});
  check({.name = "empty constant",
         .inputs = {none},
         .build = [](Builder& b, const std::vector<ValueId>& in) { return b.add(OpKind::kExp, {in[0]}); },
         .expected = {none},
         .constant = {0}});
}

TEST_CASE("what does not fit is said") {
  auto add = [](Builder& b, const std::vector<ValueId>& in) { return b.add(OpKind::kAdd, {in[0], in[1]}); };
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kF32, {2}), sample(DType::kF32, {3})},
                 .build = add,
                 .expected = {}},
                false) == "add: dims 2 and 3 do not broadcast: they must be equal, or one of them 1");
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kF32, {2}), sample(DType::kF32, {3})},
                 .build = add,
                 .expected = {}},
                true) == "add: dims 2 and 3 do not broadcast: they must be equal, or one of them 1");
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kF32, {2}), sample(DType::kI32, {2})},
                 .build = add,
                 .expected = {}},
                false) == "add: inputs 0 and 1 have dtypes f32 and i32");
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kI32, {2})},
                 .build = [](Builder& b, const auto& in) { return b.add(OpKind::kExp, {in[0]}); },
                 .expected = {}},
                false) == "exp takes floats, not i32");
}
