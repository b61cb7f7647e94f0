#include "compiler/tune/measure.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/tune/worker.h"

namespace stridec::tune {
namespace {

// The child owns nothing: it neither removes the parent's files nor reports a crash as one of stridec.
void become_worker() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS})
    signal(number, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

struct Child {
  pid_t pid = -1;
  int events = -1;
};

Child start(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
            const MeasureOptions& options) {
  int ends[2];
  if (pipe(ends) != 0) fail(ErrorKind::kOverBudget, "no-process", cat("pipe: ", std::strerror(errno)));
  const pid_t pid = fork();
  if (pid < 0) fail(ErrorKind::kOverBudget, "no-process", cat("fork: ", std::strerror(errno)));
  if (pid > 0) {
    close(ends[1]);
    return {pid, ends[0]};
  }
  close(ends[0]);
  become_worker();
  try {
    run_worker(subjects, alive, options, ends[1]);
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

// One event; 0: the pipe is closed, -1: silence for too long.
int next_event(int descriptor, Event& event, double patience) {
  size_t have = 0;
  while (have < sizeof event) {
    pollfd wait = {descriptor, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(patience * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return -1;
    const ssize_t n = read(descriptor, reinterpret_cast<char*>(&event) + have, sizeof event - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    have += static_cast<size_t>(n);
  }
  return 1;
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return cat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  return cat("exit status ", WEXITSTATUS(status));
}

}  // namespace

Estimate estimate(std::vector<double> samples) {
  if (samples.empty()) return {};
  auto middle = [](std::vector<double>& values) {
    const size_t half = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
    double upper = values[half];
    if (values.size() % 2) return upper;
    return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) /
           2;
  };
  const double n = static_cast<double>(samples.size());
  const double median = middle(samples);
  for (double& sample : samples) sample = std::abs(sample - median);
  // 1.48 deviations are a standard deviation, 1.25 of which over sqrt(n) is the error of a median (both for
  // normal errors).
  return {median, 1.25 * 1.48 * middle(samples) / std::sqrt(n)};
}

std::vector<Outcome> measure(const std::vector<Subject>& subjects, const MeasureOptions& options) {
  std::vector<Outcome> outcomes(subjects.size());
  std::vector<bool> alive(subjects.size(), true);
  std::vector<std::vector<double>> times;
  bool ended = false;
  while (!ended && std::find(alive.begin(), alive.end(), true) != alive.end()) {
    // Rounds start anew with every process: figures of one are never compared with another's.
    times.assign(subjects.size(), {});
    Child child = start(subjects, alive, options);
    int current = -1;
    Event event{};
    int got;
    while ((got = next_event(child.events, event, options.hang_seconds)) > 0) {
      if (event.kind == Event::Kind::kEnd) break;
      const auto s = static_cast<size_t>(event.subject);
      if (event.kind == Event::Kind::kBegin) {
        current = event.subject;
      } else if (event.kind == Event::Kind::kSample) {
        times[s].push_back(event.seconds);
      } else {
        alive[s] = false;
        outcomes[s] = {.kind = Outcome::Kind::kFailed, .reason = event.reason};
      }
    }
    ended = got > 0;
    if (got < 0) kill(child.pid, SIGKILL);
    close(child.events);
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (ended) break;
    const Outcome verdict = got < 0 ? Outcome{.kind = Outcome::Kind::kHung,
                                              .reason = cat("no answer in ", options.hang_seconds, " s")}
                                    : Outcome{.kind = Outcome::Kind::kCrashed, .reason = ending_of(status)};
    // Before the first call nobody in particular is to blame, and trying again would not help.
    if (current < 0) std::fill(outcomes.begin(), outcomes.end(), verdict), alive.assign(alive.size(), false);
    if (current < 0) break;
    outcomes[static_cast<size_t>(current)] = verdict;
    alive[static_cast<size_t>(current)] = false;
    if (current == 0) break;  // nothing left to compare with
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
