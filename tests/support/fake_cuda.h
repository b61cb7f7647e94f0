// A driver without a GPU: a libcuda.so.1 for tests, whose device memory is host memory and whose kernels do nothing, or
// what a test registers for them. Streams run at once, in order; graphs replay the kernels that were captured. Events read
// a clock that a kernel moves on by a microsecond, or by what the test's own adds to it.
//
// A test finds the controls by dlsym in the library that the runtime loads ("libcuda.so.1" through LD_LIBRARY_PATH, or
// already in the process under that name).
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// One launch, also of a graph's replay.
struct FakeLaunch {
  const char* symbol;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void* stream;
  const char* parameters;
  size_t parameter_bytes;
  int32_t replayed;  // 1: by a graph
};
using FakeKernel = void (*)(const FakeLaunch* launch, void* user);

// What happened since fake_cuda_reset(), which also frees nothing, registers nothing and fails nothing any more.
struct FakeCounts {
  int64_t launches, replays;  // kernels launched by themselves, graphs launched
  int64_t captures, instantiations, updates;
  int64_t uploads, downloads, uploaded_bytes;
  int64_t memory, allocations;  // bytes and blocks in use now
  int64_t pushes;               // of a context
};

struct FakeCuda {
  int32_t devices;       // 1
  int32_t capability;    // 90
  int64_t memory_bytes;  // of a device; more is out of memory
  const char*
      fail_call;  // the name of a function that fails, without a version ("cuLaunchKernelEx"); null: none
  int32_t fail_after;     // after so many calls that work
  int32_t fail_status;    // with this CUresult
  int32_t refuse_cubins;  // 1: of images, PTX alone loads
  int32_t log;            // 1: launches go to stderr
  int32_t fault;  // from now on every call in a context fails with this CUresult, as after a faulty kernel
  double clock;   // microseconds; kernels may move it
};

FakeCuda* fake_cuda();
FakeCounts* fake_cuda_counts();
void fake_cuda_reset();
// Runs for every launch of the symbol (null: of those without a kernel of their own).
void fake_cuda_register(const char* symbol, FakeKernel kernel, void* user);
}
