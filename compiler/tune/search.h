// The search for one kernel's schedule.
//
// The candidates of schedule/heuristics/candidates.h are tried a few at a time, families first, then variations of the best: those
// that might beat it by more than noise, as far as the model and its errors so far (cost_model_calibration.h) can tell. They are raced
// with the default at the first shape; those that are not clearly slower there at the others too. The best one has the
// least geometric mean of its ratios to the default, and is slower than the default at no shape. Where no candidate is likely
// to gain, or what was tried of late did not, those around the best one follow, if there are others; the search ends where
// they do not gain either, or where the time is used up.
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
  // `shapes` tell the kernel's sizes apart; one at least. What `measuring` says of time and patience is replaced.
  Search(const loop::Program& program, loop::NestId nest, Backend& backend, std::vector<Values> shapes,
         MeasureOptions measuring);

  // Builds the default of each search, all together.
  static void build_defaults(const std::vector<Search*>& searches);
  // Its time alone; false: it cannot be had at any shape, and there is nothing to search.
  bool measure_default();
  // Of a call at a shape; 0 where there is nothing to do.
  double default_seconds(size_t shape) const { return default_seconds_[shape]; }

  // False: there was no time to try anything, and nothing is known yet.
  bool run(double seconds, Calibration& forecast);

  // What was found best is another schedule than the default.
  bool gains() const { return best_.has_value(); }
  // The kernel with it, or with its default; nothing where there is nothing to do at the shape.
  std::optional<Subject> subject(size_t shape, bool best) const;
  // The default holds after all.
  void give_up();
  // Drops the code of what lost.
  void forget();

  // Key and name of the kernel are the caller's. Times are geometric means over the shapes.
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
  double call_seconds() const;  // of the default, all shapes together

  const loop::Program alone_;
  Backend& backend_;
  const std::vector<Values> shapes_;
  MeasureOptions measuring_;
  schedule::Candidate first_;
  std::vector<schedule::Candidate> space_;
  std::map<std::string, std::unique_ptr<Code>> made_;  // by the schedule's text
  std::vector<bool> tried_schedules_;
  std::set<std::string> tried_families_;
  std::vector<double> default_seconds_;  // by shape
  std::optional<schedule::Candidate> best_;
  Score score_;
  std::vector<Trial> trials_;
};

}  // namespace stridec::tune
