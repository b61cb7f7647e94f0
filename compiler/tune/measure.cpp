#include "compiler/tune/measure.h"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/base/text.h"
#include "compiler/tune/child.h"
#include "compiler/tune/gpu.h"
#include "compiler/tune/worker.h"

namespace stridec::tune {
namespace {

Child start(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
            const MeasureOptions& options) {
  return start_child([&](int descriptor) { run_worker(subjects, alive, options, descriptor); });
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return cat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  return cat("exit status ", WEXITSTATUS(status));
}

}  // namespace

std::vector<Outcome> measure(const std::vector<Subject>& subjects, const MeasureOptions& options, Gpu* gpu) {
  std::vector<Outcome> outcomes(subjects.size());
  std::vector<bool> alive(subjects.size(), true);
  std::vector<std::vector<double>> times;
  bool ended = false;
  while (!ended && std::find(alive.begin(), alive.end(), true) != alive.end()) {
    // Rounds restart with every process: times from different processes are never compared.
    times.assign(subjects.size(), {});
    const Child child = gpu ? gpu->ask(subjects, alive, options) : start(subjects, alive, options);
    if (child.pid <= 0)  // the device was lost
      return std::vector<Outcome>(subjects.size(),
                                  {.kind = Outcome::Kind::kFailed, .reason = gpu->problem()});
    int current = -1;
    Event event{};
    int got;
    std::string fault;
    while ((got = next_event(child.descriptor, event, options.hang_seconds)) > 0) {
      if (event.kind == Event::Kind::kEnd) break;
      if (event.kind == Event::Kind::kFault) {
        fault = event.reason;
        continue;
      }
      const auto s = static_cast<size_t>(event.subject);
      if (event.kind == Event::Kind::kBegin) {
        current = event.subject;
      } else if (event.kind == Event::Kind::kSample) {
        times[s].push_back(event.seconds);
      } else {
        alive[s] = false;
        outcomes[s] = {
            .kind = event.kind == Event::Kind::kWrong ? Outcome::Kind::kWrong : Outcome::Kind::kFailed,
            .reason = event.reason};
      }
    }
    ended = got > 0;
    if (ended && gpu) break;  // the child waits for the next race
    const int status = gpu ? gpu->end(got < 0) : end_child(child, got < 0);
    if (ended) break;
    const Outcome verdict = got < 0 ? Outcome{.kind = Outcome::Kind::kHung,
                                              .reason = cat("no answer in ", options.hang_seconds, " s")}
                                    : Outcome{.kind = Outcome::Kind::kCrashed,
                                              .reason = fault.empty() ? ending_of(status) : fault};
    // A failure before the first call is not the fault of a subject, and a retry would not help.
    if (current < 0) std::fill(outcomes.begin(), outcomes.end(), verdict), alive.assign(alive.size(), false);
    if (current < 0) break;
    outcomes[static_cast<size_t>(current)] = verdict;
    alive[static_cast<size_t>(current)] = false;
    if (current == 0) break;  // nothing is left to compare with
  }
  if (!ended || !alive[0]) {
    for (size_t s = 0; s < subjects.size(); ++s)
      if (alive[s]) outcomes[s] = {.kind = Outcome::Kind::kFailed, .reason = "nothing to compare with"};
    return outcomes;
  }
  const double first = estimate(times[0]).median;
  for (size_t s = 0; s < subjects.size(); ++s) {
    if (!alive[s]) continue;
    std::vector<double> ratios;
    for (size_t r = 0; r < times[s].size(); ++r) ratios.push_back(times[s][r] / times[0][r]);
    const Estimate ratio = estimate(std::move(ratios));
    outcomes[s] = {.kind = Outcome::Kind::kTimed,
                   .seconds = first * ratio.median,
                   .ratio = ratio.median,
                   .noise = ratio.error,
                   .rounds = static_cast<int>(times[s].size())};
  }
  return outcomes;
}

}  // namespace stridec::tune
