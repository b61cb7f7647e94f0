// What a cubin says about its kernels: registers, memory, spills. Source of the format: ELF with NVIDIA's sections, as
// `cuobjdump -res-usage` and `readelf` show it.
#pragma once

#include <string>
#include <string_view>

namespace stridec::codegen::cuda {

struct Resources {
  int registers = 0;     // of a thread; 0: not known
  int shared_bytes = 0;  // static, of a block
  int stack_bytes = 0;   // of a thread's local memory: arrays and spilled registers
  int code_bytes = 0;
};

// Of the kernel `symbol`; zeros where the bytes are no cubin.
Resources resources_of(std::string_view cubin, const std::string& symbol);

}  // namespace stridec::codegen::cuda
