// What an NVIDIA GPU can do, as generators and schedules need to know it.
//
// Ask for capabilities, never for names. Sources: CUDA C++ programming guide, "compute capabilities"; PTX ISA.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stridec {

struct GpuTarget {
  std::string name;     // "sm_90a"; "ptx": text that the driver compiles for any later device
  int capability = 80;  // 10 * major + minor of the code
  bool exact = false;   // architecture-specific code ("a"): runs on devices of this capability alone
  bool ptx = false;

  int shared_bytes = 99 << 10;      // most of one block, with opting in
  int shared_bytes_sm = 100 << 10;  // of a multiprocessor
  int registers = 64 << 10;
  int threads_sm = 1536;
  int blocks_sm = 16;
  bool async_copy = true;  // cp.async
  bool tma = false;        // cp.async.bulk.tensor, mbarrier transactions
  bool clusters = false;
  bool wgmma = false;             // Hopper's warp-group matrix instructions
  bool tcgen05 = false;           // Blackwell's, with tensor memory
  bool fp8_mma = false;           // mma.sync on e4m3 and e5m2
  bool dependent_launch = false;  // griddepcontrol

  // Of a typical device, for cost models: they steer choices and never correctness.
  int multiprocessors = 108;
  double memory_gb_s = 1500;
  int l2_bytes = 40 << 20;
  // Flops that a multiprocessor does in a cycle: dense products of 16-bit floats into f32 by tensor cores, multiply-adds of
  // f32. Source: NVIDIA's white papers of the architectures.
  int tensor_flops = 512;
  int scalar_flops = 256;
};

// Weakest first.
std::span<const GpuTarget> gpu_targets();

// A row by name. Throws Error kUsage, code "unknown-gpu", with the list of names.
const GpuTarget& gpu_target(std::string_view name);

}  // namespace stridec
