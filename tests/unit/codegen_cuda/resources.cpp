// Resource usage read from a cubin, and the occupancy computed from it.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/cubin.h"
#include "compiler/codegen/cuda/nvrtc.h"

namespace stridec::codegen::cuda {
namespace {

// A kernel whose threads hold `count` live values, which are loaded before any is used.
std::string holds(int count, int threads) {
  return cat("extern \"C\" __global__ void __launch_bounds__(", threads,
             ", 1) kernel(const float* p, float* q) {\n",
             "  __shared__ float shared[100];\n  shared[threadIdx.x % 100] = p[threadIdx.x];\n  float held[",
             count, "];\n#pragma unroll\n  for (int i = 0; i < ", count, "; ++i) held[i] = p[i * ", threads,
             " + threadIdx.x];\n  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < ", count,
             "; ++i) q[i * ", threads, " + threadIdx.x] = held[", count, " - 1 - i] * shared[i % 100];\n}\n");
}

TEST_CASE("registers, shared memory and what is spilled are read off a cubin") {
  const Nvrtc nvrtc("");
  for (const char* name : {"sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"}) {
    const GpuTarget& target = gpu_target(name);
    if (!nvrtc.supports(target)) continue;
    INFO(name);
    const Resources few = resources_of(nvrtc.compile("few.cu", holds(16, 128), target), "kernel");
    CHECK(few.registers > 16);
    CHECK(few.registers < 128);
    CHECK(few.shared_bytes == 400);
    CHECK(few.stack_bytes == 0);
    CHECK(few.stack_loads + few.stack_stores == 0);
    CHECK(few.code_bytes > 0);
    // With 1024 threads each has 64 registers.
    const Resources many = resources_of(nvrtc.compile("many.cu", holds(120, 1024), target), "kernel");
    CHECK(many.registers <= 64);
    CHECK(many.stack_bytes >= 4 * (120 - 64));
    CHECK(many.stack_stores >= (120 - 64) / 4);
    CHECK(many.stack_loads >= (120 - 64) / 4);
  }
  CHECK(resources_of("no cubin", "kernel").registers == 0);
}

TEST_CASE("blocks that a multiprocessor holds: registers, threads, shared memory or their number end it") {
  const GpuTarget& target = gpu_target("sm_90a");  // 65,536 registers, 2,048 threads, 228 KiB
  const auto blocks = [&](int registers, int threads, int fixed, int dynamic) {
    return resident_blocks({.registers = registers, .shared_bytes = fixed}, threads, dynamic, target);
  };
  CHECK(blocks(32, 256, 0, 0) == 8);  // limited by threads
  CHECK(blocks(33, 256, 0, 0) == 6);  // 40 registers each, in steps of 8
  CHECK(blocks(168, 384, 0, 0) == 1);
  CHECK(blocks(16, 32, 0, 0) == 32);  // limited by the number of blocks
  CHECK(blocks(16, 33, 0, 0) == 32);
  // Limited by shared memory, of which each block takes an extra KiB.
  CHECK(blocks(32, 128, 0, 75 << 10) == 3);
  CHECK(blocks(32, 128, 1, 75 << 10) == 2);
  CHECK(blocks(255, 256, 0, 227 << 10) == 1);
  CHECK(resident_blocks({.registers = 16}, 32, 0, gpu_target("sm_86")) == 16);
  CHECK(resident_blocks({.registers = 16}, 32, 0, gpu_target("sm_120a")) == 24);
}

}  // namespace
}  // namespace stridec::codegen::cuda
