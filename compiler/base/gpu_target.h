// The capabilities of an NVIDIA GPU, for code generation and schedules.
//
// Ask for capabilities, never for names. Sources: CUDA C++ programming guide, "compute capabilities"; PTX
// ISA.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stridec {

struct GpuTarget {
  std::string name;     // "sm_90a"; "ptx": text that the driver compiles for any later device
  int capability = 80;  // 10 * major + minor of the code
  bool exact = false;   // architecture-specific code ("a"): runs only on devices of this capability
  bool ptx = false;

  int shared_bytes = 99 << 10;      // maximum per block, with opt-in
  int shared_bytes_sm = 100 << 10;  // per multiprocessor
  int registers = 64 << 10;
  int threads_sm = 1536;
  int blocks_sm = 16;
  bool async_copy = true;  // cp.async
  bool tma = false;        // cp.async.bulk.tensor, mbarrier transactions
  bool clusters = false;
  bool wgmma = false;             // Hopper's warp-group matrix instructions
  bool tcgen05 = false;           // Blackwell's matrix instructions, with tensor memory
  bool fp8_mma = false;           // mma.sync on e4m3 and e5m2
  bool dependent_launch = false;  // griddepcontrol

  // Figures of a typical device, for cost models. They affect decisions, never correctness.
  int multiprocessors = 108;
  double memory_gb_s = 1500;
  int l2_bytes = 40 << 20;
  // Floating-point operations per cycle and multiprocessor: dense 16-bit tensor-core GEMM with f32
  // accumulation, and f32 multiply-adds. Source: NVIDIA's white papers of the architectures.
  int tensor_flops = 512;
  int scalar_flops = 256;
};

// Weakest first.
std::span<const GpuTarget> gpu_targets();

// Finds a row by name. Throws Error kUsage, code "unknown-gpu", with the list of names.
const GpuTarget& gpu_target(std::string_view name);

}  // namespace stridec
