// A candidate that was measured, and what came of it.
#pragma once

#include <string>
#include <vector>

namespace stridec::tune {

struct Trial {
  std::string schedule, family;
  double expected = 1;  // times the default's, by the analytic model
  std::vector<double>
      ratios;           // times the default's, at each shape that it was raced at; empty: it got no time
  std::string problem;  // why not: "crashed: signal 11 (Segmentation fault)"
};

}  // namespace stridec::tune
