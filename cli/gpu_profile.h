// Times of the kernels of runs on a GPU, for `profile`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/cupti.h"
#include "cli/kernel_costs.h"
#include "cli/profile_rows.h"
#include "runtime/include/stridec/runtime.h"

namespace stridec::cli {

// Collects the kernels that a trace with STRIDEC_TRACE_KERNELS tells.
class GpuRecorder {
 public:
  // A kernel of a run. A call of a step may launch several; `launch` numbers them.
  struct Kernel {
    int step, launch;
    int64_t begin, nanoseconds;
  };
  using Run = std::vector<Kernel>;

  static void sink(void* user, const stridec_event* event);  // `user`: the recorder

  // By the number of the run. A run without kernels is missing.
  const std::map<int64_t, Run>& runs() const { return runs_; }

 private:
  int64_t begin_ = 0;
  std::map<int64_t, Run> runs_;
};

// `seconds`: the device's time for each run, in order.
Samples kernel_samples(const std::map<int64_t, GpuRecorder::Run>& runs, const std::vector<double>& seconds);

// Assigns the kernels that CUPTI has recorded to steps, in the form of GpuRecorder. `recorded` has the
// kernels of all runs in sequence, `reference` those of the run `known`, whose steps are known. The k-th
// kernel of a symbol belongs to the same step in each run. Where kernels overlap, the time counts for the
// one that began first. Throws Error if the runs do not have the same kernels.
std::map<int64_t, GpuRecorder::Run> steps_of_kernels(const std::vector<Cupti::Kernel>& recorded,
                                                     const std::vector<Cupti::Kernel>& reference,
                                                     const GpuRecorder::Run& known, size_t runs);

// Adds the kernels to a trace's file, as slices of a thread of their own. `begin` of the kernels are on the
// host's clock after adding `to_host`; `names` and `facts` are of the steps.
void add_to_trace(const std::string& path, const std::map<int64_t, GpuRecorder::Run>& runs, int64_t to_host,
                  const std::vector<std::string>& names, const std::map<int, StepFacts>& facts);

}  // namespace stridec::cli
