// A trace of the runs of one context: a slice for each run, step, part, wait and copy, to the caller's sink
// when it begins and ends, and to a file. Records go to memory that trace_start allocates; their text is
// made between runs (trace_text.h).
#pragma once

#include "cuda_stamps.h"
#include "stridec/abi.h"
#include "stridec/runtime.h"
#include "text.h"

namespace stridec::runtime {

struct Trace;

// Replaces an existing trace. `shared`: other contexts of the process write to the file.
stridec_status trace_start(stridec_context& context, const stridec_trace_options& options, bool shared,
                           Text& message);
// Returns the errno of a write to the trace's file that failed, or 0.
int32_t trace_stop(stridec_context& context);
// Says why the trace's file cannot be written.
stridec_status trace_file_failed(Text& message, const char* path, int32_t error);
// Starts a trace that gives ranges to the tool that takes them (nvtx.h), if there is one.
void trace_for_ranges(stridec_context& context);
// Starts the trace that STRIDEC_PROFILE or a tool asks for. A file that cannot be written is ignored, since
// model_open has logged it.
void trace_from_environment(stridec_context& context);

// To be called before and after each run of a traced context.
void trace_run_begins(stridec_context& context);
void trace_run_ends(stridec_context& context, stridec_status status);
// Returns the time at which the step begins: the end of the step before, without another reading of the
// clock, unless trace_pause was called in between. For a step of one part the trace adds the part itself.
// Steps of several parts call trace_part_begins and trace_part_ends. `parts` 0: the step has no parts.
int64_t trace_step_begins(Trace& trace, int32_t step, int32_t parts);
// Returns the step's end.
int64_t trace_step_ends(Trace& trace, int32_t step, int32_t parts);
// The time until the next step belongs to no step.
void trace_pause(Trace& trace);
bool trace_has_parts(const Trace& trace);
// Any thread may call these, several at once for different parts.
void trace_part_begins(Trace& trace, int32_t step, int32_t part);
void trace_part_ends(Trace& trace, int32_t step, int32_t part);

// A kernel on a GPU or a replay of a recorded graph, on the host's clock. It may belong to an earlier run.
// `launch`: its number among those of one call of a step.
void trace_gpu_work(Trace& trace, const StampOwner& owner, int32_t launch, int64_t begin, int64_t end);

// A copy of an input or output for a run; nothing where the context is not traced.
class TracedCopy {
 public:
  TracedCopy(stridec_context& context, bool output, int32_t index);
  ~TracedCopy();
  TracedCopy(const TracedCopy&) = delete;
  TracedCopy& operator=(const TracedCopy&) = delete;

 private:
  Trace* trace_;  // null: none
  bool output_;
  int32_t index_;
  int64_t begin_;
};

}  // namespace stridec::runtime
