#include "compiler/loop/scalar_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"

namespace stridec::loop::bytecode {
namespace {

// ---- floats ----------------------------------------------------------------------------------------------

template <class F>
void float_map(DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n, F f) {
  if (type == DType::kF32)
    for (int l = 0; l < n; ++l) d[l].f = static_cast<float>(f(a[l].f, b[l].f, c[l].f));
  else if (type == DType::kF64)
    for (int l = 0; l < n; ++l) d[l].f = f(a[l].f, b[l].f, c[l].f);
  else
    for (int l = 0; l < n; ++l) d[l].f = round_float(type, f(a[l].f, b[l].f, c[l].f));
}

double float_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(r, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
double float_sign(double a) { return std::isnan(a) ? a : a > 0 ? 1 : a < 0 ? -1 : 0; }
double float_sigmoid(double a) {  // exp(-a) alone overflows where the result is subnormal
  const double e = std::exp(-std::fabs(a));
  return (a < 0 ? e : 1) / (1 + e);
}
double float_min(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double float_max(double a, double b) { return std::isnan(a) || a > b ? a : b; }

bool float_op(ScalarOp op, DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n) {
  auto map = [&](auto f) {
    float_map(type, d, a, b, c, n, f);
    return true;
  };
  switch (op) {
    case ScalarOp::kNeg: return map([](double x, double, double) { return -x; });
    case ScalarOp::kAbs: return map([](double x, double, double) { return std::fabs(x); });
    case ScalarOp::kSign: return map([](double x, double, double) { return float_sign(x); });
    case ScalarOp::kFloor: return map([](double x, double, double) { return std::floor(x); });
    case ScalarOp::kCeil: return map([](double x, double, double) { return std::ceil(x); });
    case ScalarOp::kTrunc: return map([](double x, double, double) { return std::trunc(x); });
    case ScalarOp::kRound: return map([](double x, double, double) { return std::nearbyint(x); });
    case ScalarOp::kSqrt: return map([](double x, double, double) { return std::sqrt(x); });
    case ScalarOp::kRsqrt: return map([](double x, double, double) { return 1 / std::sqrt(x); });
    case ScalarOp::kRcp: return map([](double x, double, double) { return 1 / x; });
    case ScalarOp::kExp: return map([](double x, double, double) { return std::exp(x); });
    case ScalarOp::kExpm1: return map([](double x, double, double) { return std::expm1(x); });
    case ScalarOp::kLog: return map([](double x, double, double) { return std::log(x); });
    case ScalarOp::kLog1p: return map([](double x, double, double) { return std::log1p(x); });
    case ScalarOp::kSin: return map([](double x, double, double) { return std::sin(x); });
    case ScalarOp::kCos: return map([](double x, double, double) { return std::cos(x); });
    case ScalarOp::kTan: return map([](double x, double, double) { return std::tan(x); });
    case ScalarOp::kAsin: return map([](double x, double, double) { return std::asin(x); });
    case ScalarOp::kAcos: return map([](double x, double, double) { return std::acos(x); });
    case ScalarOp::kAtan: return map([](double x, double, double) { return std::atan(x); });
    case ScalarOp::kSinh: return map([](double x, double, double) { return std::sinh(x); });
    case ScalarOp::kCosh: return map([](double x, double, double) { return std::cosh(x); });
    case ScalarOp::kTanh: return map([](double x, double, double) { return std::tanh(x); });
    case ScalarOp::kAsinh: return map([](double x, double, double) { return std::asinh(x); });
    case ScalarOp::kAcosh: return map([](double x, double, double) { return std::acosh(x); });
    case ScalarOp::kAtanh: return map([](double x, double, double) { return std::atanh(x); });
    case ScalarOp::kErf: return map([](double x, double, double) { return std::erf(x); });
    case ScalarOp::kSigmoid: return map([](double x, double, double) { return float_sigmoid(x); });
    case ScalarOp::kAdd: return map([](double x, double y, double) { return x + y; });
    case ScalarOp::kSub: return map([](double x, double y, double) { return x - y; });
    case ScalarOp::kMul: return map([](double x, double y, double) { return x * y; });
    case ScalarOp::kDiv: return map([](double x, double y, double) { return x / y; });
    case ScalarOp::kMod: return map([](double x, double y, double) { return float_mod(x, y); });
    case ScalarOp::kRem: return map([](double x, double y, double) { return std::fmod(x, y); });
    case ScalarOp::kPow: return map([](double x, double y, double) { return std::pow(x, y); });
    case ScalarOp::kAtan2: return map([](double x, double y, double) { return std::atan2(x, y); });
    case ScalarOp::kMin: return map([](double x, double y, double) { return float_min(x, y); });
    case ScalarOp::kMax: return map([](double x, double y, double) { return float_max(x, y); });
    case ScalarOp::kFma:
      if (type == DType::kF64) return map([](double x, double y, double z) { return std::fma(x, y, z); });
      return map([](double x, double y, double z) {
        return std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
      });
    default: return false;
  }
}

// ---- integers --------------------------------------------------------------------------------------------

using Wide = uint64_t;  // wraps
Wide wide(int64_t v) { return static_cast<Wide>(v); }

template <class F>
void integer_map(DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n, F f) {
  if (type == DType::kI64 || type == DType::kU64)
    for (int l = 0; l < n; ++l) d[l].i = static_cast<int64_t>(f(a[l].i, b[l].i, c[l].i));
  else if (type == DType::kI32)
    for (int l = 0; l < n; ++l) d[l].i = static_cast<int32_t>(f(a[l].i, b[l].i, c[l].i));
  else
    for (int l = 0; l < n; ++l) d[l].i = wrap_integer(type, static_cast<int64_t>(f(a[l].i, b[l].i, c[l].i)));
}

int64_t signed_div(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(-wide(a)) : a / b;
}
int64_t signed_rem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t signed_mod(int64_t a, int64_t b) {
  int64_t r = signed_rem(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t power(int64_t base, int64_t exponent, bool is_unsigned) {
  if (exponent < 0 && !is_unsigned) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  Wide result = 1, factor = wide(base);
  for (Wide e = wide(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<int64_t>(result);
}

bool integer_op(ScalarOp op, DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n) {
  const bool is_unsigned = !is_signed(type), u64 = type == DType::kU64;
  const Wide bits = static_cast<Wide>(stridec::info(type).bits);
  auto map = [&](auto f) {
    integer_map(type, d, a, b, c, n, f);
    return true;
  };
  using I = int64_t;
  switch (op) {
    case ScalarOp::kNeg: return map([](I x, I, I) { return -wide(x); });
    case ScalarOp::kAbs: return map([=](I x, I, I) { return x < 0 && !is_unsigned ? -wide(x) : wide(x); });
    case ScalarOp::kSign: return map([=](I x, I, I) { return u64 ? x != 0 : (x > 0) - (x < 0); });
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound: return map([](I x, I, I) { return x; });
    case ScalarOp::kNot: return map([](I x, I, I) { return !x; });
    case ScalarOp::kBitNot: return map([](I x, I, I) { return ~x; });
    case ScalarOp::kAdd: return map([](I x, I y, I) { return wide(x) + wide(y); });
    case ScalarOp::kSub: return map([](I x, I y, I) { return wide(x) - wide(y); });
    case ScalarOp::kMul: return map([](I x, I y, I) { return wide(x) * wide(y); });
    case ScalarOp::kDiv:
      if (u64) return map([](I x, I y, I) { return y == 0 ? 0 : wide(x) / wide(y); });
      return map([](I x, I y, I) { return signed_div(x, y); });
    case ScalarOp::kMod:
      if (u64) return map([](I x, I y, I) { return y == 0 ? 0 : wide(x) % wide(y); });
      return map([](I x, I y, I) { return signed_mod(x, y); });
    case ScalarOp::kRem:
      if (u64) return map([](I x, I y, I) { return y == 0 ? 0 : wide(x) % wide(y); });
      return map([](I x, I y, I) { return signed_rem(x, y); });
    case ScalarOp::kPow: return map([=](I x, I y, I) { return power(x, y, is_unsigned); });
    case ScalarOp::kMin: return map([=](I x, I y, I) { return (u64 ? wide(x) < wide(y) : x < y) ? x : y; });
    case ScalarOp::kMax: return map([=](I x, I y, I) { return (u64 ? wide(x) > wide(y) : x > y) ? x : y; });
    case ScalarOp::kAnd: return map([](I x, I y, I) { return x && y; });
    case ScalarOp::kOr: return map([](I x, I y, I) { return x || y; });
    case ScalarOp::kXor: return map([](I x, I y, I) { return (x != 0) != (y != 0); });
    case ScalarOp::kBitAnd: return map([](I x, I y, I) { return x & y; });
    case ScalarOp::kBitOr: return map([](I x, I y, I) { return x | y; });
    case ScalarOp::kBitXor: return map([](I x, I y, I) { return x ^ y; });
    case ScalarOp::kShl: return map([=](I x, I y, I) { return wide(y) >= bits ? 0 : wide(x) << y; });
    case ScalarOp::kShr:
      if (is_unsigned) return map([=](I x, I y, I) { return wide(y) >= bits ? 0 : wide(x) >> y; });
      return map([=](I x, I y, I) { return wide(y) >= bits ? 0 : x >> y; });
    case ScalarOp::kFma: return map([](I x, I y, I z) { return wide(x) * wide(y) + wide(z); });
    default: return false;
  }
}

template <class F>
bool to_bool(Cell* d, const Cell* a, const Cell* b, int n, F f) {
  for (int l = 0; l < n; ++l) d[l].i = f(a[l], b[l]);
  return true;
}

bool predicate(ScalarOp op, DType type, Cell* d, const Cell* a, const Cell* b, int n) {
  const bool f = is_float(type), u64 = type == DType::kU64;
  switch (op) {
    case ScalarOp::kIsNan: return to_bool(d, a, b, n, [=](Cell x, Cell) { return f && std::isnan(x.f); });
    case ScalarOp::kIsInf: return to_bool(d, a, b, n, [=](Cell x, Cell) { return f && std::isinf(x.f); });
    case ScalarOp::kEq:
      return to_bool(d, a, b, n, [=](Cell x, Cell y) { return f ? x.f == y.f : x.i == y.i; });
    case ScalarOp::kNe:
      return to_bool(d, a, b, n, [=](Cell x, Cell y) { return f ? x.f != y.f : x.i != y.i; });
    case ScalarOp::kLt:
      return to_bool(d, a, b, n, [=](Cell x, Cell y) {
        return f ? x.f < y.f : u64 ? wide(x.i) < wide(y.i) : x.i < y.i;
      });
    case ScalarOp::kLe:
      return to_bool(d, a, b, n, [=](Cell x, Cell y) {
        return f ? x.f <= y.f : u64 ? wide(x.i) <= wide(y.i) : x.i <= y.i;
      });
    default: return false;
  }
}

uint64_t bits_of(DType type, Cell value) {
  if (is_float(type)) return encode_float(type, value.f);
  int bits = stridec::info(type).bits;
  return bits == 64 ? wide(value.i) : wide(value.i) & ((Wide{1} << bits) - 1);
}

// Whether pair b (key, index) beats pair a in argmax and the like.
bool better(Combine combine, DType type, Cell a_key, int64_t a_index, Cell b_key, int64_t b_index) {
  bool max = combine == Combine::kArgMax || combine == Combine::kArgMaxLast;
  bool last = combine == Combine::kArgMaxLast || combine == Combine::kArgMinLast;
  bool tie_wins = last ? b_index > a_index : b_index < a_index;
  if (is_float(type)) {
    bool a_nan = std::isnan(a_key.f), b_nan = std::isnan(b_key.f);
    if (a_nan || b_nan) return a_nan && b_nan ? tie_wins : b_nan;
    if (a_key.f == b_key.f) return tie_wins;
    return max ? b_key.f > a_key.f : b_key.f < a_key.f;
  }
  if (a_key.i == b_key.i) return tie_wins;
  bool greater = type == DType::kU64 ? wide(b_key.i) > wide(a_key.i) : b_key.i > a_key.i;
  return greater == max;
}

}  // namespace

void scalar_op(ScalarOp op, DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n) {
  if (op == ScalarOp::kSelect) {
    for (int l = 0; l < n; ++l) d[l] = a[l].i ? b[l] : c[l];
    return;
  }
  bool done = predicate(op, type, d, a, b, n) ||
              (is_float(type) ? float_op(op, type, d, a, b, c, n) : integer_op(op, type, d, a, b, c, n));
  STRIDEC_CHECK(done, std::string(info(op).name) + " of " + std::string(name(type)));
}

void convert(DType from, DType to, bool saturate, Cell* d, const Cell* a, int n) {
  if (is_float(from) && is_float(to)) {
    for (int l = 0; l < n; ++l) d[l].f = round_float(to, a[l].f, saturate);
  } else if (is_float(from)) {
    for (int l = 0; l < n; ++l) d[l].i = float_to_integer(to, a[l].f, saturate);
  } else if (is_float(to)) {
    // Convert 64-bit integers to f32 directly: going through double would round twice.
    for (int l = 0; l < n; ++l) {
      int64_t v = a[l].i;
      bool u64 = from == DType::kU64;
      if (to == DType::kF32)
        d[l].f = u64 ? static_cast<float>(wide(v)) : static_cast<float>(v);
      else
        d[l].f = round_float(to, u64 ? static_cast<double>(wide(v)) : static_cast<double>(v), saturate);
    }
  } else {
    for (int l = 0; l < n; ++l) d[l].i = integer_to_integer(from, to, a[l].i, saturate);
  }
}

void bitcast(DType from, DType to, Cell* d, const Cell* a, int n) {
  for (int l = 0; l < n; ++l) {
    uint64_t bits = bits_of(from, a[l]);
    if (is_float(to))
      d[l].f = decode_float(to, bits);
    else
      d[l].i = wrap_integer(to, static_cast<int64_t>(bits));
  }
}

void combine_lanes(Combine combine, DType type, Cell* acc, const Cell* value, int n) {
  DType wide_type = is_float(type) ? DType::kF64 : type;
  switch (combine) {
    case Combine::kSum: return scalar_op(ScalarOp::kAdd, wide_type, acc, acc, value, value, n);
    case Combine::kProd: return scalar_op(ScalarOp::kMul, wide_type, acc, acc, value, value, n);
    case Combine::kMax: return scalar_op(ScalarOp::kMax, type, acc, acc, value, value, n);
    case Combine::kMin: return scalar_op(ScalarOp::kMin, type, acc, acc, value, value, n);
    case Combine::kAnd: return scalar_op(ScalarOp::kAnd, type, acc, acc, value, value, n);
    case Combine::kOr: return scalar_op(ScalarOp::kOr, type, acc, acc, value, value, n);
    default: check_failed(__FILE__, __LINE__, "a combine of one value", std::string(name(combine)));
  }
}

Cell to_cell(const Scalar& value) {
  Cell out;
  if (is_float(value.dtype))
    out.f = value.f;
  else
    out.i = value.i;
  return out;
}

Scalar to_scalar(DType type, Cell value) {
  if (is_float(type)) return {.dtype = type, .f = value.f, .i = 0};
  return {.dtype = type, .f = 0, .i = value.i};
}

void combine_pairs(Combine combine, DType key_type, Cell* key, Cell* index, const Cell* new_key,
                   const Cell* new_index, int n) {
  for (int l = 0; l < n; ++l)
    if (better(combine, key_type, key[l], index[l].i, new_key[l], new_index[l].i)) {
      key[l] = new_key[l];
      index[l] = new_index[l];
    }
}

void round_lanes(DType type, Cell* d, int n) {
  if (!is_float(type) || type == DType::kF64) return;
  for (int l = 0; l < n; ++l) d[l].f = round_float(type, d[l].f);
}

Cell load_cell(DType type, const uint8_t* element) {
  Cell out;
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(byte_size(type)));
  if (is_float(type))
    out.f = decode_float(type, bits);
  else
    out.i = wrap_integer(type, static_cast<int64_t>(bits));
  return out;
}

void store_cell(DType type, uint8_t* element, Cell value) {
  // Narrow signed integers are sign-extended to a byte.
  uint64_t bits = is_float(type) ? encode_float(type, value.f) : wide(value.i);
  std::memcpy(element, &bits, static_cast<size_t>(byte_size(type)));
}

}  // namespace stridec::loop::bytecode
