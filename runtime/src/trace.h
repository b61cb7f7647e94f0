// A trace of the runs of one context: a slice for each run, step and part, to the caller's sink when it
// begins and ends, and to a file after the run.
#pragma once

#include "stridec/abi.h"
#include "stridec/runtime.h"
#include "text.h"

namespace stridec::runtime {

struct Trace;

// Replaces an existing trace. `shared`: other contexts of the process append to the file.
stridec_status trace_start(stridec_context& context, const stridec_trace_options& options, bool shared,
                           Text& message);
void trace_stop(stridec_context& context);
// Starts the trace that STRIDEC_PROFILE asks for. A file that cannot be written is ignored, since model_open
// has logged it.
void trace_from_environment(stridec_context& context);

// To be called before and after each run of a traced context.
void trace_run_begins(stridec_context& context);
void trace_run_ends(stridec_context& context, stridec_status status);
void trace_step_begins(Trace& trace, int32_t step, int64_t time);
void trace_step_ends(Trace& trace, int32_t step, int64_t begin, int64_t end, int32_t parts);
bool trace_has_parts(const Trace& trace);
// Any thread may call these, several at once for different parts.
void trace_part_begins(Trace& trace, int32_t step, int32_t part);
void trace_part_ends(Trace& trace, int32_t step, int32_t part);

}  // namespace stridec::runtime
