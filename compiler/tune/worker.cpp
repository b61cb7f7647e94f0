#include "compiler/tune/worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "compiler/tune/estimate.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Event::Kind;

constexpr size_t kMostCalls = 1000;  // in a row

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Drops subjects that are clearly slower after a few rounds. The first subject stays, because the others are
// compared with it.
void drop_slow(int round, const std::vector<std::vector<double>>& times, std::vector<bool>& alive) {
  if (round < 1) return;
  double best = 1;
  std::vector<double> ratios(times.size(), 1);
  for (size_t s = 1; s < times.size(); ++s) {
    if (!alive[s]) continue;
    std::vector<double> relative;
    for (size_t r = 0; r < times[s].size(); ++r) relative.push_back(times[s][r] / times[0][r]);
    ratios[s] = estimate(std::move(relative)).median;
    best = std::min(best, ratios[s]);
  }
  const double limit = round < 3 ? 1.5 : round < 6 ? 1.15 : 1.06;
  for (size_t s = 1; s < times.size(); ++s)
    if (alive[s] && ratios[s] > limit * best) alive[s] = false;
}

}  // namespace

void run_rounds(Runner& runner, const MeasureOptions& options, std::vector<bool> alive, int descriptor) {
  const size_t subjects = alive.size();
  size_t current = 0;
  const auto tell = [&](const Event& event) {
    if (!send_all(descriptor, &event, sizeof event)) _exit(1);  // the parent has closed the socket
  };
  try {
    for (size_t s = 0; s < subjects; ++s) {
      if (!alive[s]) continue;
      const std::string problem = runner.load(s);
      if (problem.empty()) continue;
      alive[s] = false;
      tell(event_of(Kind::kFailed, s, problem.c_str()));
    }
    runner.make_memory(alive);
    const auto start = Clock::now();
    std::vector<size_t> repeats(subjects, 1);
    std::vector<std::vector<double>> times(subjects);
    for (size_t s = 0; s < subjects; ++s) {
      if (!alive[s]) continue;
      current = s;
      tell(event_of(Kind::kBegin, s));
      const Event first = runner.first_call(s);
      if (first.reason[0]) {
        alive[s] = false;
        tell(first);
        continue;
      }
      // Estimates the duration of a call.
      double least = runner.call(s, 1);
      if (least < 0.05) least = std::min(least, runner.call(s, 1));
      repeats[s] = std::clamp<size_t>(static_cast<size_t>(runner.sample_seconds() / std::max(least, 1e-8)), 1,
                                      kMostCalls);
    }
    for (int round = 0; round < options.most_rounds; ++round) {
      if (round >= 3 && seconds_since(start) > options.seconds) break;
      for (size_t i = 0; i < subjects; ++i) {
        const size_t s = (i + static_cast<size_t>(round)) % subjects;
        if (!alive[s]) continue;
        current = s;
        Event event = event_of(Kind::kBegin, s);
        event.round = round;
        tell(event);
        event.kind = Kind::kSample;
        event.seconds = runner.call(s, repeats[s]);
        times[s].push_back(event.seconds);
        tell(event);
      }
      drop_slow(round, times, alive);
    }
    tell(event_of(Kind::kEnd, 0));
  } catch (const Fault& fault) {
    tell(event_of(Kind::kFault, current, fault.reason.c_str()));
    _exit(1);
  }
}

void run_worker(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
                const MeasureOptions& options, int descriptor) {
  Runner* runner = cpu_runner(subjects, options).release();  // _exit follows, so nothing is destroyed
  run_rounds(*runner, options, alive, descriptor);
}

}  // namespace stridec::tune
