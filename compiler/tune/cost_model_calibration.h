// Corrects the analytic model by measurements: one factor per family of schedules, with its standard
// deviation.
//
// The errors of the model are common to all kernels (for example, a micro-kernel that is faster than
// predicted), so measurements of one kernel shorten the search for the next, in this run and in later ones.
// The database stores them.
#pragma once

#include <map>
#include <string>

namespace stridec::tune {

// Statistics of log(measured / expected): count, sum and sum of squares.
struct ModelError {
  double count = 0, sum = 0, squares = 0;
  void add(double error) { ++count, sum += error, squares += error * error; }
  void add(const ModelError& more) { count += more.count, sum += more.sum, squares += more.squares; }
};
using ModelErrors = std::map<std::string, ModelError>;  // by family

class Calibration {
 public:
  // `known`, from earlier runs, has the weight of a few measurements per family, however many it contains.
  explicit Calibration(const ModelErrors& known = {});

  // Records a measurement: a schedule of the family took `ratio` times the kernel's default time; the model
  // predicted `expected`.
  void learn(const std::string& family, double expected, double ratio);
  // The likely ratio for a prediction of the model, and its lower bound at two standard deviations.
  struct Range {
    double likely, least;
  };
  Range range(const std::string& family, double expected) const;
  const ModelErrors& learned() const { return learned_; }  // only from learn()

 private:
  ModelErrors known_, learned_;
};

}  // namespace stridec::tune
