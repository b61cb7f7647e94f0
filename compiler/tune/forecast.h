// What measuring has taught about the analytic model's errors: a factor for each family of schedules, with its spread.
//
// Kernels share the model's mistakes (a micro-kernel that is faster than thought is so in all of them), so what was
// measured on one shortens the search for the next.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stridec::tune {

class Forecast {
 public:
  // A schedule of the family took `ratio` times as long as the kernel's default where the model said `expected`.
  void learn(const std::string& family, double expected, double ratio);
  // The ratio that is likely, and the least that two standard deviations allow, for what the model says.
  struct Range {
    double likely, least;
  };
  Range range(const std::string& family, double expected) const;

 private:
  std::map<std::string, std::vector<double>> errors_;  // logarithms of ratio / expected
};

}  // namespace stridec::tune
