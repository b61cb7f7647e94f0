// A CUDA driver without a GPU: a libcuda.so.1 for tests. Device memory is host memory; kernels do nothing, or
// what a test registers for them. Streams run immediately, in order. Graphs replay the captured kernels.
// Events read a clock that each kernel advances by a microsecond, or by what the test's kernel adds to it.
//
// A test finds the controls with dlsym in the library that the runtime loads ("libcuda.so.1" from
// LD_LIBRARY_PATH, or already loaded under that name).
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// One launch, direct or from a graph.
struct FakeLaunch {
  const char* symbol;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void* stream;
  const char* parameters;
  size_t parameter_bytes;
  int32_t replayed;  // 1: launched by a graph
};
using FakeKernel = void (*)(const FakeLaunch* launch, void* user);

// Counts since fake_cuda_reset(). The reset also clears registered kernels and failures; it frees no memory.
struct FakeCounts {
  int64_t launches, replays;  // direct kernel launches, graph launches
  int64_t captures, instantiations, updates;
  int64_t uploads, downloads, uploaded_bytes;
  int64_t memory, allocations;  // bytes and blocks in use now
  int64_t pushes;               // of a context
};

struct FakeCuda {
  int32_t devices;       // 1
  int32_t capability;    // 90
  int64_t memory_bytes;  // per device; larger allocations fail as out of memory
  // The function that fails, without version suffix ("cuLaunchKernelEx"); null: none.
  const char* fail_call;
  int32_t fail_after;     // after so many successful calls
  int32_t fail_status;    // with this CUresult
  int32_t refuse_cubins;  // 1: cubin images are rejected, only PTX loads
  int32_t log;            // 1: log launches to stderr
  int32_t fault;          // every call in a context fails with this CUresult, as after a faulty kernel
  double clock;           // microseconds; kernels may advance it
};

FakeCuda* fake_cuda();
FakeCounts* fake_cuda_counts();
void fake_cuda_reset();
// Runs `kernel` for every launch of the symbol. Null: for launches of symbols without a kernel of their own.
void fake_cuda_register(const char* symbol, FakeKernel kernel, void* user);
}
