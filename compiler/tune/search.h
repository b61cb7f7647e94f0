// Searches the best schedule of one kernel.
//
// The candidates of schedule/heuristics/candidates.h are tried a few at a time: families first, then
// variations of the best. Only candidates are tried that may beat the best by more than noise, according to
// the model and its known errors (cost_model_calibration.h). They race against the default at the first
// shape; those that are not clearly slower also race at the others. The best one has the smallest geometric
// mean of its ratios to the default, and is slower than the default at no shape. If no candidate is likely to
// gain, or the last ones tried did not, the candidates around the best one follow (Backend::candidates), if
// there are others. The search ends if they do not gain either, or if the time is used up.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/tune/backend.h"
#include "compiler/tune/cost_model_calibration.h"
#include "compiler/tune/database.h"
#include "compiler/tune/measure.h"
#include "compiler/tune/trial.h"

namespace stridec::tune {

class Search {
 public:
  // `shapes`: values of the kernel's sizes, at least one set. The times and patience of `measuring` are
  // replaced.
  Search(const loop::Program& program, loop::NestId nest, Backend& backend, std::vector<Values> shapes,
         MeasureOptions measuring);

  // Builds the default schedules of all searches together.
  static void build_defaults(const std::vector<Search*>& searches);
  // Times the default alone. Returns false if it cannot be measured at any shape; then there is nothing to
  // search.
  bool measure_default();
  // Of one call at a shape; 0 if there is no work at that shape.
  double default_seconds(size_t shape) const { return default_seconds_[shape]; }

  // Returns false if there was no time to try anything, so that nothing is known yet.
  bool run(double seconds, Calibration& forecast);

  // Whether the best schedule is not the default.
  bool gains() const { return best_.has_value(); }
  // The kernel with the best schedule, or with the default; nothing if there is no work at the shape.
  std::optional<Subject> subject(size_t shape, bool best) const;
  // Returns to the default.
  void give_up();
  // Frees the code of the losing candidates.
  void forget();

  // The caller sets the key and the kernel's name. Times are geometric means over the shapes.
  Entry entry() const;
  std::vector<Trial> take_trials() { return std::move(trials_); }

 private:
  using Candidates = std::vector<const schedule::Candidate*>;
  struct Score {
    double ratio = 1, noise = 0;
  };

  std::vector<size_t> pick(const Calibration& forecast, double seconds);
  void try_batch(const std::vector<size_t>& picked, double seconds, Calibration& forecast);
  void confirm(double seconds);
  void make(const Candidates& candidates);
  std::vector<Outcome> race(const Candidates& candidates, size_t shape, double seconds, int rounds);
  double expected(const schedule::Candidate& candidate) const;
  double call_seconds() const;  // of the default, summed over all shapes

  const loop::Program alone_;
  Backend& backend_;
  const std::vector<Values> shapes_;
  MeasureOptions measuring_;
  schedule::Candidate first_;
  std::vector<schedule::Candidate> space_;
  std::map<std::string, std::unique_ptr<Code>> made_;  // keyed by the schedule's text
  std::vector<bool> tried_schedules_;
  std::set<std::string> tried_families_;
  std::vector<double> default_seconds_;  // per shape
  std::optional<schedule::Candidate> best_;
  Score score_;
  std::vector<Trial> trials_;
};

}  // namespace stridec::tune
