// Draws instances of rules: types, attributes and values.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "compiler/extend/evaluate.h"
#include "compiler/extend/rule.h"
#include "compiler/loop/interpret.h"

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

// The types of a rule's variables, in order; shapes are constant. `size`: 0 for the smallest instances.
std::vector<graph::Type> draw_types(Draws& draws, const Rule& rule, int size);

// What the values of an instance are like.
enum class Values { kPlain, kLarge, kNan, kPositiveInfinity, kSpecial };
std::vector<Values> kinds_of_values(const Check& check);
struct FloatFormat {
  int bits = 0;   // of the significand, with the leading one
  int most = 0;   // the largest number is below 2^(most + 1)
  int least = 0;  // the smallest positive number is 2^least
};
// `formats`: where a rule rounds to them, numbers next to their ties are drawn too.
loop::HostTensor draw_tensor(Draws& draws, const graph::Type& type, const Check& check, Values values,
                             bool constant, const std::vector<FloatFormat>& formats = {});

Attr draw_attribute(Draws& draws, const graph::Builder& builder, graph::OpKind kind,
                    const std::string& attribute, const std::vector<graph::ValueId>& inputs);
Attr draw_parameter(Draws& draws, const std::string& parameter, int rank);

}  // namespace stridec::extend
