// Converts the text of a CUDA kernel for the CPU (emulate.h): defines CUDA's keywords and intrinsics, and
// replaces device functions whose bodies are PTX by C++.
//
// Shared memory is an array per block of a cluster; shared addresses are offsets into it. Async and bulk
// copies complete immediately. Tensor core operations are executed immediately by the threads that hold the
// accumulators. Barriers in memory count as PTX ISA specifies.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "compiler/codegen/device_kernel.h"

namespace stridec::test {

#define STRIDEC_UNARY(X) \
  X(exp)                 \
  X(exp2)                \
  X(expm1)               \
  X(log)                 \
  X(log1p)               \
  X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf)
#define STRIDEC_BINARY(X) X(pow) X(atan2) X(fmod)

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};

// The state and callbacks that the compiled text uses; the text declares the same struct.
struct Machine {
  Dim3 thread, block, size, grid;
  unsigned rank = 0;                        // of the block in its cluster
  void (*barrier)(int of);                  // enum Among
  void (*await)(const int* word, int bit);  // until the lowest bit of *word differs from `bit`
  void (*named)(int number, int threads, int waits);
  uint64_t (*exchange)(uint64_t value, int distance);
  void (*touch)(void* address, int64_t bytes, int store);
  void (*meet_at)(void* counter);
#define X(name) float (*name##f_)(float) = std::name;
  STRIDEC_UNARY(X)
#undef X
#define X(name) double (*name##_)(double) = std::name;
  STRIDEC_UNARY(X)
#undef X
#define X(name) float (*name##f_)(float, float) = std::name;
  STRIDEC_BINARY(X)
#undef X
#define X(name) double (*name##_)(double, double) = std::name;
  STRIDEC_BINARY(X)
#undef X
};

// The threads that a barrier covers.
enum Among { kOfWarp, kOfBlock, kOfCluster };

// A tensor map in the form the text uses: codegen::TensorMap with known sizes.
struct EmulatedMap {
  uint8_t* base;
  int64_t dims[5], strides[5];  // in bytes
  int rank, element, swizzle, windows;
  int box[5], steps[5], lower[3], upper[3];
};

// The complete text. Its function sd_entry runs one thread of the kernel, given the parameters as 64-bit
// words, pointers to maps first. `tiles`: the kernel is from a template with tiles in shared memory
// (codegen/cuda/matrix, attention).
std::string emulated_text(const codegen::DeviceKernel& kernel, bool tiles);

}  // namespace stridec::test
