// Random choices that a seed decides.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

namespace stridec::extend {

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  // The standard library's distributions compute a logarithm for each number.
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // in [0, 1)
  bool chance(double p) { return unit() < p; }
  double between(double a, double b) { return a + (b - a) * unit(); }
  double normal() {  // Box and Muller
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
  template <class T>
  T any_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace stridec::extend
