#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using Ids = std::vector<ValueId>;

namespace {

// The sum as defined.
HostTensor naive(const HostTensor& x, bool backward) {
  const int64_t n = x.shape[x.shape.size() - 2];
  return compute(x.dtype, x.shape, [&](const At& o) {
    At from = o;
    int64_t &j = from[o.size() - 2], &part = from.back();
    double re = 0, im = 0;
    for (j = 0; j < n; ++j) {
      const double angle =
          2 * std::numbers::pi * static_cast<double>(j * o[o.size() - 2] % n) / static_cast<double>(n);
      const double c = std::cos(angle), s = backward ? std::sin(angle) : -std::sin(angle);
      part = 0;
      const double a = at(x, from);
      part = 1;
      const double b = at(x, from);
      re += a * c - b * s;
      im += a * s + b * c;
    }
    return o.back() ? im : re;
  });
}

Case fourier_case(DType dtype, std::vector<int64_t> shape, bool backward, bool symbolic = true) {
  const HostTensor x = sample(dtype, shape);
  Case c{.name = cat("fourier of ", shape[shape.size() - 2], backward ? " backward" : ""),
         .inputs = {x},
         .build = [backward](Builder& b,
                             const Ids& in) { return Ids{ops::fourier(ops::Term(b, in[0]), backward)}; },
         .expected = {naive(x, backward)},
         .tolerance = dtype == DType::kF32 ? 2e-5 : 1e-12,
         .fixed = {}};
  c.symbolic = symbolic;
  return c;
}

}  // namespace

TEST_CASE("fourier: every kind of factor, either direction, whatever the number of rows") {
  for (const bool backward : {false, true}) {
    for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 30, 32, 121, 169, 210, 256})
      check(fourier_case(DType::kF64, {3, n, 2}, backward));
    for (const int64_t n : {10, 26, 64, 77}) check(fourier_case(DType::kF32, {2, 9, n, 2}, backward));
    check(fourier_case(DType::kF32, {1, 24, 2}, backward));
    check(fourier_case(DType::kF32, {24, 2}, backward));
    check(fourier_case(DType::kF64, {0, 6, 2}, backward));
    check(fourier_case(DType::kF64, {3, 0, 2}, backward));
  }
}

TEST_CASE("fourier: a length with a large prime factor is a convolution") {
  for (const bool backward : {false, true})
    for (const int64_t n : {127, 254, 509}) check(fourier_case(DType::kF64, {2, n, 2}, backward));
}

// NumPy 2's result of np.fft.ifft(np.arange(0, 100, 10, np.complex64)), times ten; the exact result is 0
// there.
TEST_CASE("fourier: the rounding is that of pocketfft") {
  HostTensor x = loop::make_tensor(DType::kF32, {10, 2});
  for (int64_t k = 0; k < 10; ++k) loop::set_number(x, 2 * k, static_cast<double>(10 * k));
  HostTensor expected = naive(x, true);
  loop::set_number(expected, 11, 0x1p-19);
  check({.name = "noise",
         .inputs = {x},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{ops::slice(ops::fourier(ops::Term(b, in[0]), true), 0, 5, 1)};
             },
         .expected = {compute(DType::kF32, {1, 2},
                              [&](const At& o) {
                                return at(expected, {5, o[1]});
                              })},
         .tolerance = 1e-7});
}
