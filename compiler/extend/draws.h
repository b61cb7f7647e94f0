// Random choices that a seed decides.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace stridec::extend {

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  double normal() { return std::normal_distribution<double>(0, 1)(random_); }
  double between(double a, double b) { return std::uniform_real_distribution<double>(a, b)(random_); }
  template <class T>
  T any_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace stridec::extend
