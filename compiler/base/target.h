// The capabilities of a CPU, for code generation and schedules.
//
// Ask for capabilities ("how many vector registers of how many bytes"), never for names or version numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stridec {

struct CpuTarget {
  std::string name;  // also clang's -target-cpu
  std::string tune;  // clang's -tune-cpu

  int vector_bytes = 16;      // of the widest registers that are worth using
  int vector_registers = 16;  // of that width
  bool avx = false;
  bool f16c = false;
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;       // F, BW, CD, DQ, VL: masks on vectors of every width
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_fp16 = false;
  bool vnni = false;  // vpdpbusd on the widest vectors
  bool vbmi = false;  // vpermi2b: byte tables in registers
  bool amx_bf16 = false;  // tdpbf16ps and tdpb*d: products of tiles with 16 rows of 64 bytes
  bool amx_int8 = false;

  // Figures of one core, for cost models. They affect decisions, never correctness.
  int fma_per_cycle = 1;  // of the widest vectors; without FMA: pairs of a multiplication and an addition
  double bf16_dots_per_cycle = 1;  // vdpbf16ps on the widest vectors
  int load_bytes_per_cycle = 32;
  int l1_bytes = 32 << 10;
  int l2_bytes = 256 << 10;
  int l3_bytes = 1 << 20;  // one core's share

  int lanes(int element_bytes) const { return vector_bytes / element_bytes; }
};

// The named processors, weakest first. "native" is not among them.
std::span<const CpuTarget> cpu_targets();

// Finds a row by name; "native" is the strongest row that this machine can run. Throws Error kUsage, code
// "unknown-cpu", with the list of names.
const CpuTarget& cpu_target(std::string_view name);

}  // namespace stridec
