// What a trace keeps, for trace.cpp and for launches, which read it without a call.
#pragma once

#include <pthread.h>

#include "stridec/runtime.h"
#include "ticks.h"
#include "trace_text.h"

namespace stridec::runtime {

struct Function;

// A thread, and the kernel's number for it, which takes a system call to find out.
struct Owner {
  pthread_t self;
  int32_t number;  // 0: not asked yet
};

struct Part;  // of the step in progress

struct Trace {
  stridec_sink sink;
  void* user;
  uint32_t flags;
  Ticks ticks;
  int64_t boundary;  // the end of the last step, where the next one begins; 0: it reads the clock
  int64_t last;      // the time of the last record
  TraceRecord* records;
  int32_t count, room;
  bool to_file;
  Owner thread;              // the caller's, of the run in progress
  const Function* function;  // of the run in progress; null: none
  int64_t run;
  int64_t runs_left;  // -1: no limit
  int64_t write_at;   // when records are written, though there is room for more
  Part* parts;
  int64_t** sizes;   // per function: those in the file
  int64_t anchored;  // when the GPU's clock was related to the host's
  int64_t gpu_end;   // of the last work of the GPU's stream
  void*** ranges;    // per function and step: handles of names; null: no tool takes NVTX ranges
  stridec_context* context;
  Trace *next, *previous;  // of the traces of this artifact
  uint32_t list;           // the number of their list
  // Whether a sink alone takes the steps, without parts: launches then call it themselves.
  bool to_sink_alone;
  const char* const* step_names;  // of the function of the run in progress
  stridec_event step;             // that the sink gets, with other times and names
  TraceText text;
};

// The time now, but not before the time of the last record.
inline int64_t trace_time(Trace& t) {
  const int64_t now = ticks_now(t.ticks);
  if (now > t.last) t.last = now;
  return t.last;
}

// On the caller's thread.
inline void trace_tell_step(Trace& t, bool ends, int64_t time, int32_t step) {
  t.step.ends = ends;
  t.step.time = time;
  t.step.step = step;
  t.step.name = t.step_names[step];
  t.sink(t.user, &t.step);
}

}  // namespace stridec::runtime
