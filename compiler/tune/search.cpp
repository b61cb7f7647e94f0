#include "compiler/tune/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Candidate;
using Kind = Outcome::Kind;

constexpr size_t kBatch = 6;            // candidates built and measured together
constexpr int kInVain = 2;              // batches in a row without a gain that end a search
constexpr double kWorthwhile = 0.03;    // a smaller gain of a single kernel has no effect in the whole run
constexpr double kTie = 0.01;           // smaller differences do not count
constexpr double kClearlySlower = 1.1;  // at the first shape: not raced at the others
constexpr int kLeastCalls = 5;          // calls of a kernel in a race, however long it takes
constexpr int64_t kMostBytes = int64_t{2} << 30;  // of a kernel's arguments

std::string problem_of(const Outcome& outcome) {
  const char* what = outcome.kind == Kind::kCrashed ? "crashed"
                     : outcome.kind == Kind::kHung  ? "hung"
                     : outcome.kind == Kind::kWrong ? "wrong"
                                                    : "failed";
  return cat(what, ": ", outcome.reason);
}

// Whether it is slower than the default by more than its noise.
bool is_slower(const Outcome& outcome) { return outcome.ratio > 1 + std::max(kTie, 2 * outcome.noise); }

}  // namespace

Search::Search(const loop::Program& program, loop::NestId nest, Backend& backend, std::vector<Values> shapes,
               MeasureOptions measuring)
    : alone_(only_nest(program, nest)),
      backend_(backend),
      shapes_(std::move(shapes)),
      measuring_(measuring),
      first_{backend.default_schedule(alone_), 0, {}},
      default_seconds_(shapes_.size()) {}

// ---- building and racing ----

void Search::build_defaults(const std::vector<Search*>& searches) {
  if (searches.empty()) return;
  std::vector<Backend::Wanted> wanted;
  for (const Search* search : searches) wanted.push_back({&search->alone_, &search->first_.schedule});
  std::vector<std::unique_ptr<Code>> built = searches[0]->backend_.build(wanted);
  for (size_t s = 0; s < searches.size(); ++s)
    searches[s]->made_[loop::to_string(searches[s]->first_.schedule)] = std::move(built[s]);
}

// Builds the candidates that are not built yet.
void Search::make(const Candidates& candidates) {
  std::vector<std::unique_ptr<Code>*> fresh;
  std::vector<Backend::Wanted> wanted;
  for (const Candidate* candidate : candidates) {
    const auto [found, added] = made_.try_emplace(loop::to_string(candidate->schedule));
    if (!added) continue;
    fresh.push_back(&found->second);
    wanted.push_back({&alone_, &candidate->schedule});
  }
  if (fresh.empty()) return;
  std::vector<std::unique_ptr<Code>> built = backend_.build(wanted);
  for (size_t i = 0; i < fresh.size(); ++i) *fresh[i] = std::move(built[i]);
}

// Outcomes of the default and the candidates, in this order.
std::vector<Outcome> Search::race(const Candidates& candidates, size_t shape, double seconds, int rounds) {
  Candidates all = {&first_};
  all.insert(all.end(), candidates.begin(), candidates.end());
  make(all);
  std::vector<Outcome> outcomes(all.size());
  std::vector<Subject> subjects;
  std::vector<size_t> racing;
  for (size_t i = 0; i < all.size(); ++i) {
    const Code& code = *made_.at(loop::to_string(all[i]->schedule));
    outcomes[i].reason = code.problem;
    if (!code.problem.empty()) continue;
    try {
      Subject subject = code.subject_at(shapes_[shape]);
      int64_t bytes = 0;
      for (const auto& argument : subject.arguments) bytes += argument.bytes;
      if (bytes > kMostBytes || subject.tasks <= 0) {
        outcomes[i].reason = bytes > kMostBytes ? "too large to measure" : "nothing to do at this size";
        continue;
      }
      subjects.push_back(std::move(subject));
      racing.push_back(i);
    } catch (const Error& error) {
      outcomes[i].reason = error.text;
    }
  }
  if (racing.empty() || racing[0] != 0) return outcomes;
  MeasureOptions measuring = measuring_;
  measuring.seconds = seconds, measuring.most_rounds = rounds;
  measuring.hang_seconds = std::max(backend_.least_patience(), 200 * default_seconds_[shape]);
  const std::vector<Outcome> measured = backend_.race(subjects, measuring);
  for (size_t s = 0; s < subjects.size(); ++s) outcomes[racing[s]] = measured[s];
  return outcomes;
}

bool Search::measure_default() {
  Outcome last;
  bool timed = false;
  for (size_t s = 0; s < shapes_.size(); ++s) {
    last = race({}, s, 0.02, 5)[0];
    default_seconds_[s] = last.kind == Kind::kTimed ? last.seconds : 0;
    timed = timed || default_seconds_[s] > 0;
  }
  if (!timed) trials_.push_back({.schedule = loop::to_string(first_.schedule), .problem = problem_of(last)});
  return timed;
}

double Search::call_seconds() const {
  double sum = 0;
  for (const double seconds : default_seconds_) sum += seconds;
  return sum;
}

// ---- the search ----

double Search::expected(const Candidate& candidate) const {
  return candidate.cycles / std::max(first_.cycles, 1.0);
}

// The best schedule of every family that has not been tried, then variations of the best schedule: those that
// may gain, as many as the time allows.
std::vector<size_t> Search::pick(const Calibration& forecast, double seconds) {
  struct Pick {
    size_t index;
    double likely;
  };
  std::map<std::string, Pick> families;
  std::vector<Pick> own;
  const std::string& leading = best_ ? best_->family : first_.family;
  for (size_t i = 1; i < space_.size(); ++i) {
    if (tried_schedules_[i]) continue;
    const Candidate& candidate = space_[i];
    const auto [likely, least] = forecast.range(candidate.family, expected(candidate));
    if (least > score_.ratio * (1 - std::max(kWorthwhile, score_.noise))) continue;
    if (candidate.family == leading) own.push_back({i, likely});
    if (tried_families_.count(candidate.family)) continue;
    const auto [found, fresh] = families.emplace(candidate.family, Pick{i, likely});
    if (!fresh && likely < found->second.likely) found->second = {i, likely};
  }
  std::vector<Pick> picks;
  for (const auto& [family, chosen] : families) picks.push_back(chosen);
  auto sooner = [](const Pick& x, const Pick& y) { return x.likely < y.likely; };
  sort_stable(picks, sooner);
  sort_stable(own, sooner);
  for (const Pick& chosen : own) {
    const auto same = [&](const Pick& p) { return p.index == chosen.index; };
    if (std::none_of(picks.begin(), picks.end(), same)) picks.push_back(chosen);
  }
  const double affordable = seconds / (kLeastCalls * std::max(call_seconds(), 1e-9)) - 1;
  const auto most = static_cast<size_t>(std::clamp(affordable, 0.0, static_cast<double>(kBatch)));
  std::vector<size_t> indices;
  for (size_t i = 0; i < picks.size() && i < most; ++i) {
    indices.push_back(picks[i].index);
    tried_schedules_[picks[i].index] = true;
    tried_families_.insert(space_[picks[i].index].family);
  }
  return indices;
}

void Search::try_batch(const std::vector<size_t>& picked, double seconds, Calibration& forecast) {
  struct Runner {
    const Candidate* candidate;
    Trial trial;
    double logs = 0, noise = 0;
    bool loses = false;
  };
  std::vector<Runner> runners;
  for (const size_t i : picked)
    runners.push_back(
        {&space_[i], {loop::to_string(space_[i].schedule), space_[i].family, expected(space_[i]), {}, {}}});
  std::vector<Runner*> racing;
  for (Runner& runner : runners) racing.push_back(&runner);
  int shapes = 0;
  for (size_t s = 0; s < shapes_.size(); ++s) {
    if (default_seconds_[s] <= 0) continue;
    Candidates candidates;
    for (const Runner* runner : racing) candidates.push_back(runner->candidate);
    const double calls = static_cast<double>(candidates.size() + 1) * default_seconds_[s];
    const auto outcomes = race(candidates, s, std::clamp(15 * calls, 0.05, std::max(0.1, seconds / 2)), 25);
    if (outcomes[0].kind != Kind::kTimed) continue;
    default_seconds_[s] = outcomes[0].seconds;
    ++shapes;
    std::vector<Runner*> next;
    for (size_t r = 0; r < racing.size(); ++r) {
      const Outcome& outcome = outcomes[r + 1];
      Runner& runner = *racing[r];
      if (outcome.kind != Kind::kTimed) {
        runner.trial.problem = problem_of(outcome);
        continue;
      }
      runner.trial.ratios.push_back(outcome.ratio);
      runner.logs += std::log(outcome.ratio);
      runner.noise = std::max(runner.noise, outcome.noise);
      runner.loses = runner.loses || is_slower(outcome);
      if (outcome.ratio <= kClearlySlower) next.push_back(&runner);
    }
    racing = std::move(next);
    if (racing.empty()) break;
  }
  for (Runner& runner : runners) {
    if (!runner.trial.ratios.empty()) {
      const auto n = static_cast<double>(runner.trial.ratios.size());
      const double ratio = std::exp(runner.logs / n);
      forecast.learn(runner.candidate->family, expected(*runner.candidate), ratio);
      const bool everywhere = runner.trial.problem.empty() && static_cast<int>(n) == shapes;
      // Twice the standard error: one in forty is better by chance.
      if (everywhere && !runner.loses &&
          ratio <= score_.ratio * (1 - std::max(kWorthwhile, 2 * runner.noise))) {
        best_ = *runner.candidate;
        score_ = {ratio, runner.noise};
      }
    }
    trials_.push_back(std::move(runner.trial));
  }
}

// Among many equally good candidates one looks best by chance. The winner must therefore win one more race,
// alone against the default, and the figures of that race are recorded. Ties go to the default.
void Search::confirm(double seconds) {
  if (!best_) return;
  double logs = 0, noise = 0;
  int shapes = 0;
  bool holds = true;
  for (size_t s = 0; s < shapes_.size() && holds; ++s) {
    if (default_seconds_[s] <= 0) continue;
    const double patience = std::clamp(60 * default_seconds_[s], 0.1, std::clamp(seconds, 0.1, 1.0));
    const std::vector<Outcome> outcomes = race({&*best_}, s, patience, 25);
    holds = outcomes[0].kind == Kind::kTimed && outcomes[1].kind == Kind::kTimed && !is_slower(outcomes[1]);
    if (!holds) break;
    default_seconds_[s] = outcomes[0].seconds;
    logs += std::log(outcomes[1].ratio);
    noise = std::max(noise, outcomes[1].noise);
    ++shapes;
  }
  const double ratio = shapes ? std::exp(logs / shapes) : 1;
  holds = holds && ratio <= 1 - std::max(kWorthwhile, 2 * noise);
  score_ = holds ? Score{ratio, noise} : Score{};
  if (!holds) best_.reset();
}

bool Search::run(double seconds, Calibration& forecast) {
  if (seconds < 2 * kLeastCalls * call_seconds()) return false;
  const auto start = Clock::now();
  auto left = [&] { return seconds - std::chrono::duration<double>(Clock::now() - start).count(); };
  space_ = backend_.candidates(alone_, shapes_, nullptr);
  STRIDEC_CHECK(!space_.empty(), alone_.nests[0].name);
  first_ = space_[0];
  std::set<std::string> known;
  for (loop::Schedule around = first_.schedule;;) {
    for (const Candidate& candidate : space_) known.insert(loop::to_string(candidate.schedule));
    tried_families_.clear();
    tried_schedules_.assign(space_.size(), false);
    tried_schedules_[0] = true;
    int in_vain = 0;
    while (in_vain < kInVain && left() > 0) {
      const std::vector<size_t> picked = pick(forecast, left());
      if (picked.empty()) break;
      const double before = score_.ratio;
      try_batch(picked, left(), forecast);
      in_vain = score_.ratio == before ? in_vain + 1 : 0;
    }
    if (!best_ || best_->schedule == around || left() <= 0) break;
    around = best_->schedule;
    space_ = backend_.candidates(alone_, shapes_, &around);
    const auto old = [&](const Candidate& candidate) {
      return known.contains(loop::to_string(candidate.schedule));
    };
    space_.erase(std::remove_if(space_.begin() + 1, space_.end(), old), space_.end());
    if (space_.size() == 1) break;
  }
  confirm(left());
  return true;
}

std::optional<Subject> Search::subject(size_t shape, bool best) const {
  if (default_seconds_[shape] <= 0) return std::nullopt;
  const Candidate& chosen = best && best_ ? *best_ : first_;
  return made_.at(loop::to_string(chosen.schedule))->subject_at(shapes_[shape]);
}

void Search::give_up() {
  best_.reset();
  score_ = {};
}

void Search::forget() {
  std::erase_if(made_, [&](const auto& made) {
    return made.first != loop::to_string(first_.schedule) &&
           (!best_ || made.first != loop::to_string(best_->schedule));
  });
}

Entry Search::entry() const {
  double logs = 0;
  int shapes = 0;
  for (const double seconds : default_seconds_)
    if (seconds > 0) logs += std::log(seconds), ++shapes;
  const double seconds = shapes ? std::exp(logs / shapes) : 0;
  return {.microseconds = seconds * score_.ratio * 1e6,
          .default_microseconds = seconds * 1e6,
          .noise_percent = score_.noise * 100,
          .tried = static_cast<int>(trials_.size()) + 1,
          .schedule = loop::to_string(best_ ? best_->schedule : first_.schedule)};
}

}  // namespace stridec::tune
