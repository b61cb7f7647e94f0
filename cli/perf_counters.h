// Counters of the processor, by perf_event_open of Linux: what each step's parts count on each thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/include/stridec/runtime.h"

namespace stridec::cli {

// By the counters of PerfCounters::names(). Those that the machine lacks are 0.
using Counts = std::array<double, 4>;

class PerfCounters {
 public:
  // Throws Error where the kernel or the machine gives no counters.
  PerfCounters();
  ~PerfCounters();
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  // For a trace with STRIDEC_TRACE_PARTS; `user` is the PerfCounters. A thread's first call opens its
  // counters.
  static void sink(void* user, const stridec_event* event);
  // Forgets what was counted.
  void reset();

  const std::vector<std::string>& names() const { return names_; }  // of those that the machine has
  int64_t runs() const { return runs_; }
  // Of a step, by thread, the caller's first.
  std::vector<Counts> of_step(int step) const;

 private:
  struct Thread;
  Thread& this_thread();

  uint64_t id_;                                        // among the objects of the process
  std::vector<std::pair<uint32_t, uint64_t>> events_;  // type and number
  std::vector<std::string> names_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Thread>> threads_;
  int64_t runs_ = 0;
};

}  // namespace stridec::cli
