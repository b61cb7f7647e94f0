// The text of a CUDA kernel for this machine's CPU (emulate.h): CUDA's words, and device functions whose bodies are PTX,
// in C++.
//
// Shared memory is an array for each block of a cluster, addresses in it are offsets. The copy engine copies at once,
// products of tensor cores are done at once by the threads that have their sums; barriers in memory count as PTX ISA says.
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

// What the compiled text sees of its machine; the text declares the same.
struct Machine {
  Dim3 thread, block, size, grid;
  unsigned rank = 0;                        // of the block in its cluster
  void (*barrier)(int of);                  // Among
  void (*await)(const int* word, int bit);  // until the word's lowest bit is another one
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

// Which threads a barrier is of.
enum Among { kOfWarp, kOfBlock, kOfCluster };

// A tensor map as the text sees it, codegen::TensorMap with its sizes.
struct EmulatedMap {
  uint8_t* base;
  int64_t dims[5], strides[5];  // in bytes
  int rank, element, swizzle, windows;
  int box[5], steps[5], lower[3], upper[3];
};

// The whole text, whose function sd_entry runs a thread of the kernel, given its parameters as words: pointers to maps first.
// `tiles`: of a template with tiles in shared memory (codegen/cuda/matrix, attention).
std::string emulated_text(const codegen::DeviceKernel& kernel, bool tiles);

}  // namespace stridec::test
