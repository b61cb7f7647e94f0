// What a cubin says about its kernels: registers, memory, spills. Source of the format: ELF with NVIDIA's sections, as
// `cuobjdump -res-usage` and `readelf` show it.
#pragma once

#include <string>
#include <string_view>

#include "compiler/base/gpu_target.h"

namespace stridec::codegen::cuda {

struct Resources {
  int registers = 0;     // of a thread; 0: not known
  int shared_bytes = 0;  // static, of a block
  int stack_bytes = 0;   // of a thread's local memory: arrays and spilled registers
  int code_bytes = 0;
  int stack_loads = 0, stack_stores = 0;  // instructions that read and write it
};

// Of the kernel `symbol`; zeros where the bytes are no cubin.
Resources resources_of(std::string_view cubin, const std::string& symbol);

// How many blocks of `threads` threads and so many bytes of dynamic shared memory a multiprocessor holds at a time. Source:
// the table of technical specifications in NVIDIA's CUDA C++ Programming Guide, and its occupancy calculator's rounding.
int resident_blocks(const Resources& resources, int threads, int dynamic_bytes, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
