// The events of a trace as they are kept during runs, and their text in its file.
#pragma once

#include "stridec/abi.h"
#include "stridec/runtime.h"
#include "trace_file.h"

namespace stridec::runtime {

// Kinds of records beside those of stridec_event_kind.
enum : int32_t {
  kRunBegins = -1,  // begin: its time; step: the function
  kSize = -2,       // begin: the value; step: the symbol. Sizes come before the end of their run
};

struct TraceRecord {
  int64_t begin, end;
  int32_t kind;
  int32_t step;    // of a run: its status; of a copy: the number of the tensor
  int32_t part;    // of a copy: 1 for an output; of a GPU's work: the function
  int32_t thread;  // the kernel's number; of a GPU's work: the run
};

// The text of a step that is the same in each run: "name", "pid", and the beginning of "args" with the
// number of the step; then its nodes.
struct StepText {
  char* text;
  size_t head, whole;
};

struct FunctionText {
  StepText* steps;
  JsonString model;  // the SHA-256 of its file; without characters: not known
};

struct TraceText {
  TraceFile file;
  const stridec_context* context;
  FunctionText* functions;
  int64_t process;
  int32_t stream;  // the number that the GPU's stream has as a thread
  // Of the run whose records are written.
  int32_t function;
  int32_t thread;
  int64_t run, run_begin;
  char sizes[1400];  // of its "args"; empty: as before
  size_t used;
  char events[4 * kTracePage];  // that are not in the file yet
  int32_t named[64];            // threads that have a name in the file
  int32_t named_count;
};

// Resolves the names of all steps and begins the file, which is open. False: out of memory.
bool trace_text_start(TraceText& text, const stridec_context& context);
// Names the stream of the context's GPU, whose times may be off by `error` nanoseconds.
void trace_text_gpu(TraceText& text, int32_t device, int64_t error);
// Writes records to the file, in the order in which they were made.
void trace_text_write(TraceText& text, const TraceRecord* records, int32_t count);
// Closes the file and frees what trace_text_start made.
void trace_text_stop(TraceText& text);

}  // namespace stridec::runtime
