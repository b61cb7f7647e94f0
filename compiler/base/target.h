// What a processor can do, as the generator and the schedules need to know it.
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

  int vector_bytes = 16;      // of the widest register worth using
  int vector_registers = 16;  // of that width
  bool avx = false;
  bool f16c = false;
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;       // F, BW, CD, DQ, VL: masks on every width
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_fp16 = false;
  bool vnni = false;  // vpdpbusd on the widest vectors
  bool vbmi = false;  // vpermi2b: tables of bytes in registers
  bool amx_bf16 = false;  // tdpbf16ps and tdpb*d: products of tiles of 16 rows of 64 bytes
  bool amx_int8 = false;

  // Of one core, for cost models: they steer choices and never correctness.
  int fma_per_cycle = 1;  // widest multiply-adds; without FMA: multiplies and adds in pairs
  double bf16_dots_per_cycle = 1;  // vdpbf16ps of the widest vectors
  int load_bytes_per_cycle = 32;
  int l1_bytes = 32 << 10;
  int l2_bytes = 256 << 10;
  int l3_bytes = 1 << 20;  // share of a core

  int lanes(int element_bytes) const { return vector_bytes / element_bytes; }
};

// The named processors, weakest first. "native" is not among them.
std::span<const CpuTarget> cpu_targets();

// A row by name; "native" is the strongest row that this machine can run. Throws Error kUsage, code
// "unknown-cpu", with the list of names.
const CpuTarget& cpu_target(std::string_view name);

}  // namespace stridec
