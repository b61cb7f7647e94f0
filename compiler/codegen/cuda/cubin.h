// Reads kernel resources from a cubin: registers, memory, spills. Source of the format: ELF with NVIDIA's
// sections, as `cuobjdump -res-usage` and `readelf` show it.
#pragma once

#include <string>
#include <string_view>

#include "compiler/base/gpu_target.h"

namespace stridec::codegen::cuda {

struct Resources {
  int registers = 0;     // per thread; 0: unknown
  int shared_bytes = 0;  // static, per block
  int stack_bytes = 0;   // local memory per thread: arrays and spilled registers
  int code_bytes = 0;
  int stack_loads = 0, stack_stores = 0;  // instructions that access it
};

// Resources of the kernel `symbol`; zeros if the bytes are not cubin.
Resources resources_of(std::string_view cubin, const std::string& symbol);

// Blocks of `threads` threads and `dynamic_bytes` of dynamic shared memory that a multiprocessor holds at a
// time. Source: the table of technical specifications in NVIDIA's CUDA C++ Programming Guide, and the
// rounding rules of its occupancy calculator.
int resident_blocks(const Resources& resources, int threads, int dynamic_bytes, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
