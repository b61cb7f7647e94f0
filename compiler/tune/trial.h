// A candidate that was tried, with its measurements.
#pragma once

#include <string>
#include <vector>

namespace stridec::tune {

struct Trial {
  std::string schedule, family;
  double expected = 1;  // predicted time relative to the default's, by the analytic model
  // Time relative to the default's, at each shape it was raced at; empty: it was not timed.
  std::vector<double> ratios;
  std::string problem;  // why it was not timed: "crashed: signal 11 (Segmentation fault)"
};

}  // namespace stridec::tune
