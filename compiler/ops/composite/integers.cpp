#include "compiler/ops/composite/integers.h"

#include <cmath>

#include "compiler/ops/composite/arithmetic.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

// Euclid's algorithm, over all elements at once.
Term greatest_common_divisor(Term x, Term y) {
  constexpr int64_t kMost = 128;  // more than the steps of any two integers of 64 bits
  graph::Builder& b = x.builder();
  const Term start = abs(y);
  const LoopResult result =
      loop(b, kMost, any_element(logical_not(equal(start, 0))).id(), {abs(x).id(), start.id()},
           [&](const LoopState& state) {
             const Term last(b, state.carried[0]), divisor(b, state.carried[1]), done = equal(divisor, 0);
             const Term rest = select(done, 0, apply(OpKind::kRem, last, select(done, 1, divisor)));
             return LoopStep{.condition = any_element(logical_not(equal(rest, 0))).id(),
                             .carried = {select(done, last, divisor).id(), rest.id()},
                             .stacked = {}};
           });
  return {b, result.carried[0]};
}

Term least_common_multiple(Term x, Term y) {
  const Term divisor = greatest_common_divisor(x, y), none = equal(divisor, 0);
  return select(none, 0, abs(x / select(none, 1, divisor) * y));
}

namespace {

// The layout of f32 and f64.
struct FloatBits {
  DType bits;
  int mantissa;
  double bias;
};
FloatBits bits_of(DType dtype) {
  return dtype == DType::kF64 ? FloatBits{DType::kI64, 52, 1023} : FloatBits{DType::kI32, 23, 127};
}
// 2^k of integers k in the range of normal numbers.
Term power_of_two(Term k, DType dtype) {
  const FloatBits f = bits_of(dtype);
  return bitcast(apply(OpKind::kShl, k + f.bias, static_cast<double>(f.mantissa)), dtype);
}

}  // namespace

Exponential mantissa_and_exponent(Term x) {
  const Term w = widen(x), size = abs(w);
  const FloatBits f = bits_of(w.dtype());
  const Term plain = logical_and(greater(size, 0), logical_not(apply(OpKind::kIsInf, w)));
  const double shift = f.mantissa + 2, smallest = std::ldexp(1.0, static_cast<int>(1 - f.bias));
  const Term small = less(size, smallest),
             scaled = select(small, size * std::ldexp(1.0, f.mantissa + 2), size);
  const Term bits = bitcast(select(plain, scaled, 0.5), f.bits);
  const Term biased = apply(OpKind::kShr, bits, static_cast<double>(f.mantissa)) - (f.bias - 1);
  const Term exponent = select(logical_and(plain, small), biased - shift, biased);
  // In two steps, because 2^-exponent alone can be out of range.
  const Term half = exponent / 2.0, rest = exponent - half;
  const Term mantissa = w * power_of_two(-half, w.dtype()) * power_of_two(-rest, w.dtype());
  return {cast(select(plain, mantissa, w), x.dtype(), false), cast(exponent, DType::kI32, false)};
}

}  // namespace stridec::ops
