#include "cli/perf_counters.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

struct Event {
  const char* name;
  uint32_t type;
  uint64_t number;
};
constexpr Event kHardware[] = {{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
                               {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                               {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
                               {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES}};
constexpr Event kSoftware[] = {{"task_nanoseconds", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
                               {"page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
                               {"context_switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
                               {"migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS}};

// Of the calling thread, without the kernel's own work. `leader`: -1 for the first of a group. -1: errno says
// why.
int open_event(uint32_t type, uint64_t number, int leader) {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = type;
  attributes.config = number;
  attributes.exclude_kernel = type == PERF_TYPE_HARDWARE;
  attributes.exclude_hv = 1;
  attributes.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, leader, PERF_FLAG_FD_CLOEXEC));
}

[[noreturn]] void refuse(int error) {
  if (error == EACCES || error == EPERM) {
    std::string level = "unknown";
    std::ifstream("/proc/sys/kernel/perf_event_paranoid") >> level;
    fail(ErrorKind::kUnsupported, "no-counters",
         cat("the kernel does not let this process use counters (perf_event_paranoid is ", level, ")"),
         "'sysctl kernel.perf_event_paranoid=2' lets every process count its own work; containers may forbid "
         "perf_event_open besides");
  }
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP || error == ENOSYS)
    fail(ErrorKind::kUnsupported, "no-counters",
         error == ENOSYS ? "the kernel has no counters (perf_event_open)"
                         : "the processor's counters are not there, as in most virtual machines",
         "leave out --counters, or run it on the machine itself");
  fail(ErrorKind::kUnsupported, "no-counters", cat("the counters cannot be opened: ", std::strerror(error)),
       "leave out --counters");
}

struct Reading {
  uint64_t count, enabled, running;
  uint64_t values[std::tuple_size_v<Counts>];
};

bool read_group(int leader, Reading& reading) {
  return leader >= 0 && read(leader, &reading, sizeof reading) > 0;
}

}  // namespace

struct PerfCounters::Thread {
  std::vector<int> files;  // the first is the group's leader; empty: they cannot be opened
  Reading begin = {};
  std::map<int, Counts> of_steps;

  explicit Thread(const std::vector<std::pair<uint32_t, uint64_t>>& events) {
    for (const auto& [type, number] : events) {
      const int file = open_event(type, number, files.empty() ? -1 : files.front());
      if (file < 0) return;
      files.push_back(file);
    }
  }
  ~Thread() {
    for (const int file : files) close(file);
  }
  int leader() const { return files.empty() ? -1 : files.front(); }
  void end(int step) {
    Reading now = {};
    if (!read_group(leader(), now)) return;
    Counts& sums = of_steps[step];
    // The kernel takes turns where there are more counters than the processor has.
    const auto enabled = static_cast<double>(now.enabled - begin.enabled),
               running = static_cast<double>(now.running - begin.running);
    const double scale = running > 0 ? enabled / running : 1;
    for (size_t i = 0; i < now.count && i < sums.size(); ++i)
      sums[i] += scale * static_cast<double>(now.values[i] - begin.values[i]);
  }
};

PerfCounters::PerfCounters() {
  static std::atomic<uint64_t> made;
  id_ = ++made;
  const char* const kind = std::getenv("STRIDEC_PERF_EVENTS");
  int leader = -1, error = 0;
  std::vector<int> files;
  for (const Event& event : kind && !std::strcmp(kind, "software") ? kSoftware : kHardware) {
    const int file = open_event(event.type, event.number, leader);
    if (file < 0) {
      error = errno;
      continue;
    }
    if (leader < 0) leader = file;
    files.push_back(file);
    events_.emplace_back(event.type, event.number);
    names_.emplace_back(event.name);
  }
  for (const int file : files) close(file);
  if (names_.empty()) refuse(error);
}

PerfCounters::~PerfCounters() = default;

PerfCounters::Thread& PerfCounters::this_thread() {
  thread_local uint64_t owner = 0;
  thread_local Thread* mine = nullptr;
  if (owner != id_) {
    auto made = std::make_unique<Thread>(events_);
    const std::lock_guard lock(mutex_);
    mine = made.get();
    threads_.push_back(std::move(made));
    owner = id_;
  }
  return *mine;
}

void PerfCounters::sink(void* user, const stridec_event* event) {
  auto& counters = *static_cast<PerfCounters*>(user);
  if (event->kind == STRIDEC_EVENT_RUN && !event->ends) counters.this_thread();  // the caller's is the first
  if (event->kind == STRIDEC_EVENT_RUN && event->ends) ++counters.runs_;
  if (event->kind != STRIDEC_EVENT_PART) return;
  Thread& thread = counters.this_thread();
  if (event->ends)
    thread.end(event->step);
  else
    read_group(thread.leader(), thread.begin);
}

void PerfCounters::reset() {
  const std::lock_guard lock(mutex_);
  for (const auto& thread : threads_) thread->of_steps.clear();
  runs_ = 0;
}

std::vector<Counts> PerfCounters::of_step(int step) const {
  const std::lock_guard lock(mutex_);
  std::vector<Counts> counts;
  for (const auto& thread : threads_) {
    const auto found = thread->of_steps.find(step);
    counts.push_back(found == thread->of_steps.end() ? Counts{} : found->second);
  }
  return counts;
}

}  // namespace stridec::cli
