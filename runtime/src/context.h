// The mutable part of a loaded model: memory, threads, state and the last error. context_api.cpp creates and
// destroys it, run.cpp runs the model in it, launch.cpp has the callbacks for generated code, warm_up.cpp
// touches the memory of a run.
#pragma once

#include <atomic>

#include "memory.h"
#include "model.h"
#include "tensor.h"
#include "text.h"
#include "threads.h"

namespace stridec::runtime {

// Where a run writes an output. kDirect: the caller's memory, if it is compact. Otherwise a block of the
// context, which is returned to the caller (kOwned) or copied to the caller's memory (kStaged). On a GPU the
// block is device memory; kFetched means that the caller gets a copy in host memory. kUnknown: the dims
// depend on data, and resize_output has not been called yet.
enum class Place : int32_t { kUnknown, kDirect, kOwned, kStaged, kFetched };

struct Trace;

// What the application computes an operator with; null: nothing yet.
struct Callback {
  stridec_callback function;
  void* user;
};

struct Step {
  int64_t calls, nanoseconds, minimum;
};

// The tables of one function's runs, with the sizes of its own tables. Memory that ends with a run (arena,
// scratch, staging) belongs to the context and serves all functions.
struct Frame {
  const Function* function;
  Block* owned;    // per output
  Block* slots;    // per slot of the function
  Block* fetched;  // per output, in host memory; only for GPU runs
  int64_t* symbols;
  const int64_t** input_dims;
  const void** bind_data;
  const void** inputs;
  int64_t* staging_offset;  // per input; -1: used without a copy
  void** outputs;
  Place* places;
  int64_t* output_dims;     // of all outputs, concatenated
  int64_t** dims_of;        // per output, into output_dims
  int64_t* output_strides;  // at the place of the output's dims, for outputs with a declared order
  const void** addresses;   // of inputs, outputs, states, parameters and workspaces
  Step* steps;              // null unless profiling was requested
};

}  // namespace stridec::runtime

struct stridec_context {
  stridec_model* model;
  std::atomic<uint32_t> busy;
  std::atomic<uint32_t> cancelled;  // the current run is to end before its next step
  char error[1024];

  stridec::runtime::Allocator allocator;         // for host memory
  stridec::runtime::Allocator device_allocator;  // for GPU memory
  stridec::runtime::Allocator* memory;           // for the memory that a run works on: one of the two
  stridec::runtime::CudaContext* cuda;           // null: the model runs on the CPU
  stridec::runtime::Block arena, scratch, staging, state;
  // Own values of replaceable parameters and of those derived from them, for all functions; empty: the
  // artifact's.
  stridec::runtime::Block parameters;         // in host memory
  stridec::runtime::Block device_parameters;  // GPU: their copy
  bool parameters_written;                    // the derived ones are to be computed before the next run
  stridec::runtime::Block counters;           // GPU: zero between launches
  // Always in host memory. Only GPU runs use host_staging.
  stridec::runtime::Block failures, left, host_staging;

  int32_t threads;
  stridec::runtime::Pool* pool;  // null if the caller's parallel_for is used
  stridec_parallel_for parallel_for;
  void* parallel_user;

  stridec::runtime::Frame* frames;      // per function
  stridec::runtime::Frame* frame;       // of the function that the current call names
  void** states;                        // of the module: functions share them
  int64_t* sizes;                       // of the module, by index
  int64_t* state_dims;                  // of all states, concatenated
  const int64_t** dims_of_state;        // per state, into state_dims
  int64_t* state_strides;               // at the place of the state's dims, if it has a declared order
  stridec_abi_run run;                  // in progress; context_cancel clears its `direct`
  const stridec_tensor* given_outputs;  // of the run in progress
  stridec_status run_status;            // status of a failure in a callback; its message is in error

  stridec::runtime::Callback* callbacks;  // of the module, by index
  stridec::runtime::Trace* trace;         // null: none
  bool asynchronous;
  bool profiling;
  bool watched;  // profiling or traced: launches go through the runtime, which reads the clock
};

namespace stridec::runtime {

// The callbacks of stridec_abi_run.
int32_t launch(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args, int64_t tasks,
               int64_t grain, int32_t step, int32_t movable);
void* resize_output(stridec_abi_run* run, int32_t output, const int64_t* dims);
void* allocate_slot(stridec_abi_run* run, int32_t slot, int64_t bytes);
// GPU: waits for the timed launches and adds them to the profile and the trace.
void collect_stamps(stridec_context& context);
int32_t launch_device(stridec_abi_run* run, const stridec_abi_device_launch* launch);
int32_t call_application(stridec_abi_run* run, const stridec_abi_call* call);
// The name of an operator that the application computes; null past the last.
const char* callback_name(const stridec_abi_module& module, int32_t index);
int32_t read_device(stridec_abi_run* run, void* to, const void* from, int64_t bytes);

// Calls body(arg, part) for each part in [0, parts) on the context's threads.
void run_parts(const stridec_context& context, int32_t parts, void (*body)(void* arg, int32_t part),
               void* arg);

inline const stridec_abi_function& function_of(const stridec_context& c) { return *c.frame->function->abi; }
inline const DType& input_dtype(const stridec_context& c, int32_t i) {
  return *c.frame->function->inputs.dtypes[i];
}
inline const DType& output_dtype(const stridec_context& c, int32_t i) {
  return *c.frame->function->outputs.dtypes[i];
}
inline Compact output_memory(const stridec_context& c, int32_t i) {
  const stridec_abi_value& value = function_of(c).outputs[i];
  return {c.frame->dims_of[i], value.memory_order, value.rank, byte_size(output_dtype(c, i))};
}

// "the model", or "function 'decode'" where there are several.
Text& write_function(Text& text, const stridec_context& context);

// Makes a function the current one. On failure writes a sentence: the model has no function of that number.
stridec_status select_function(stridec_context& context, int32_t function, Text& message);

// Implements context_reserve for the current function.
stridec_status reserve(stridec_context& context, const stridec_tensor* inputs, size_t input_count,
                       const stridec_tensor* outputs, size_t output_count, Text& message);

// Grows counters to at least this many bytes.
stridec_status reserve_counters(stridec_context& context, int64_t bytes, Text& message);

// Handles a driver error: writes its message and returns the run's status. Discards counters that an
// unfinished kernel may have left nonzero.
stridec_status device_error(stridec_context& context, Text& message);

// Decides where output i is written and allocates memory; its dims must be known. Sets places[i] and
// outputs[i]. `given` may be null: the caller will pass compact memory later.
stridec_status place_output(stridec_context& context, int32_t i, const stridec_tensor* given, Text& message);

// The status of a run that recorded a failure; writes its message.
stridec_status failed_run(stridec_context& context, Text& message);

// Writes the message's sentence with {0}..{3} replaced.
void write_failure(Text& text, const stridec_abi_module& module, const stridec_abi_failure& failure);

stridec_status out_of_memory(Text& message, const char* what, int64_t bytes);

// If the run was cancelled, records that: the callback returns what ends the run.
bool is_cancelled(stridec_context& context);

}  // namespace stridec::runtime
