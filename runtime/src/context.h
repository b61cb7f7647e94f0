// The mutable half: memory, threads, state and the record of the last failure. context.cpp makes and destroys
// it, run.cpp runs the model in it, launch.cpp is what generated code calls back, warm_up.cpp touches what a run will.
#pragma once

#include <atomic>

#include "memory.h"
#include "model.h"
#include "tensor.h"
#include "text.h"
#include "threads.h"

namespace stridec::runtime {

// Where a run writes an output: the caller's memory if that is compact, otherwise a block of the context,
// which the caller is shown (kOwned) or from which the result is copied out (kStaged). On a GPU the block is the
// device's; what the caller is shown in host memory is kFetched. kUnknown: its dims depend on data and
// resize_output has not been called.
enum class Place : int32_t { kUnknown, kDirect, kOwned, kStaged, kFetched };

struct Step {
  int64_t calls, nanoseconds, minimum;
};

}  // namespace stridec::runtime

struct stridec_context {
  stridec_model* model;
  std::atomic<uint32_t> busy;
  char error[1024];

  stridec::runtime::Allocator allocator;         // of host memory
  stridec::runtime::Allocator device_allocator;  // of the GPU's
  stridec::runtime::Allocator* memory;           // of what a run works on: one of the two
  stridec::runtime::CudaContext* cuda;           // null: the model runs on the CPU
  stridec::runtime::Block arena, scratch, staging, state;
  stridec::runtime::Block counters;  // of a GPU: zero between launches
  stridec::runtime::Block* owned;    // per output
  stridec::runtime::Block* slots;    // per program slot
  // In host memory, whatever the device; host_staging and fetched serve a GPU alone.
  stridec::runtime::Block failures, left, host_staging;
  stridec::runtime::Block* fetched;  // per output

  int32_t threads;
  stridec::runtime::Pool* pool;  // null where the caller's parallel_for is used
  stridec_parallel_for parallel_for;
  void* parallel_user;

  // Per run; sizes are those of the program's tables.
  int64_t* symbols;
  const int64_t** input_dims;
  const void** bind_data;
  const void** inputs;
  int64_t* staging_offset;  // per input; -1: used where it is
  void** outputs;
  stridec::runtime::Place* places;
  int64_t* output_dims;  // all outputs, one after the other
  int64_t** dims_of;     // per output, into output_dims
  void** states;
  const void** addresses;               // of the four above and of the workspaces
  const stridec_tensor* given_outputs;  // of the run in progress
  stridec_status run_status;            // of a failure in a callback; its sentence is in error

  bool asynchronous;
  bool profiling;
  stridec::runtime::Step* steps;  // null until profiling is asked for
};

namespace stridec::runtime {

// The callbacks of stridec_abi_run.
int32_t launch(stridec_abi_run* run, stridec_abi_kernel kernel, const stridec_abi_args* args, int64_t tasks,
               int64_t grain, int32_t step, int32_t movable);
void* resize_output(stridec_abi_run* run, int32_t output, const int64_t* dims);
void* allocate_slot(stridec_abi_run* run, int32_t slot, int64_t bytes);
// Of a GPU: waits for the launches that were timed, and adds them to the profile.
void collect_profile(stridec_context& context);
int32_t launch_device(stridec_abi_run* run, const stridec_abi_device_launch* launch);
int32_t read_device(stridec_abi_run* run, void* to, const void* from, int64_t bytes);

// body(arg, part) for each part in [0, parts), on the context's threads.
void run_parts(const stridec_context& context, int32_t parts, void (*body)(void* arg, int32_t part),
               void* arg);

// What context_reserve does.
stridec_status reserve(stridec_context& context, const stridec_tensor* inputs, size_t input_count,
                       const stridec_tensor* outputs, size_t output_count, Text& message);

// Makes counters hold at least so many bytes.
stridec_status reserve_counters(stridec_context& context, int64_t bytes, Text& message);

// A sentence of the driver's; the status of the run. What a kernel that did not end has left in the counters goes.
stridec_status device_error(stridec_context& context, Text& message);

// Decides where output i goes, its dims being known, and obtains memory; fills places[i] and outputs[i].
// `given` may be null: compact memory of the caller's, not known yet.
stridec_status place_output(stridec_context& context, int32_t i, const stridec_tensor* given, Text& message);

// The message's sentence with {0}..{3} replaced.
void write_failure(Text& text, const stridec_abi_program& program, const stridec_abi_failure& failure);

stridec_status out_of_memory(Text& message, const char* what, int64_t bytes);

}  // namespace stridec::runtime
