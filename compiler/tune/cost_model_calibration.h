// What measuring has taught about the analytic model's errors: a factor for each family of schedules, with its spread.
//
// Kernels share the model's mistakes (a micro-kernel that is faster than thought is so in all of them), so what was
// measured on one shortens the search for the next, in this run and in later ones: the database keeps it.
#pragma once

#include <map>
#include <string>

namespace stridec::tune {

// Of the logarithms of measured / expected: how many there were, their sum and the sum of their squares.
struct ModelError {
  double count = 0, sum = 0, squares = 0;
  void add(double error) { ++count, sum += error, squares += error * error; }
  void add(const ModelError& more) { count += more.count, sum += more.sum, squares += more.squares; }
};
using ModelErrors = std::map<std::string, ModelError>;  // by family

class Calibration {
 public:
  // `known` from earlier runs counts for a few measurements of each family, whatever its number.
  explicit Calibration(const ModelErrors& known = {});

  // A schedule of the family took `ratio` times as long as the kernel's default where the model said `expected`.
  void learn(const std::string& family, double expected, double ratio);
  // The ratio that is likely, and the least that two standard deviations allow, for what the model says.
  struct Range {
    double likely, least;
  };
  Range range(const std::string& family, double expected) const;
  const ModelErrors& learned() const { return learned_; }  // by learn() alone

 private:
  ModelErrors known_, learned_;
};

}  // namespace stridec::tune
