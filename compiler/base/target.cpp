#include "compiler/base/target.h"

#include <array>
#include <cstddef>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stridec {
namespace {

constexpr int kKib = 1 << 10, kMib = 1 << 20;

CpuTarget v2(std::string name, std::string tune) {
  CpuTarget t;
  t.name = std::move(name);
  t.tune = std::move(tune);
  t.load_bytes_per_cycle = 16;
  return t;
}

CpuTarget v3(std::string name, std::string tune) {
  CpuTarget t = v2(std::move(name), std::move(tune));
  t.vector_bytes = 32;
  t.avx = t.f16c = t.fma = t.avx2 = true;
  t.fma_per_cycle = 2;
  t.load_bytes_per_cycle = 64;
  return t;
}

CpuTarget v4(std::string name, std::string tune) {
  CpuTarget t = v3(std::move(name), std::move(tune));
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.avx512 = true;
  t.fma_per_cycle = 1;
  t.l2_bytes = kMib;
  return t;
}

std::array<CpuTarget, 12> make_table() {
  CpuTarget znver3 = v3("znver3", "znver3");
  znver3.l2_bytes = 512 * kKib;
  znver3.l3_bytes = 4 * kMib;

  CpuTarget skylake = v4("skylake-avx512", "skylake-avx512");
  skylake.fma_per_cycle = 2;
  skylake.load_bytes_per_cycle = 128;
  CpuTarget cascadelake = skylake;
  cascadelake.name = cascadelake.tune = "cascadelake";
  cascadelake.vnni = true;
  CpuTarget icelake = cascadelake;
  icelake.name = icelake.tune = "icelake-server";
  icelake.vbmi = true;
  icelake.l1_bytes = 48 * kKib;
  icelake.l2_bytes = 1280 * kKib;
  CpuTarget sapphire = icelake;
  sapphire.name = sapphire.tune = "sapphirerapids";
  sapphire.avx512_bf16 = sapphire.avx512_fp16 = sapphire.amx_bf16 = sapphire.amx_int8 = true;
  sapphire.bf16_dots_per_cycle = 0.5;  // measured: half the rate of f32 multiply-adds
  sapphire.l2_bytes = 2 * kMib;
  sapphire.l3_bytes = 2 * kMib;

  CpuTarget znver4 = v4("znver4", "znver4");
  znver4.vnni = znver4.vbmi = znver4.avx512_bf16 = true;
  znver4.l3_bytes = 4 * kMib;
  CpuTarget znver5 = znver4;
  znver5.name = znver5.tune = "znver5";
  znver5.fma_per_cycle = 2;
  znver5.bf16_dots_per_cycle = 2;
  znver5.load_bytes_per_cycle = 128;
  znver5.l1_bytes = 48 * kKib;

  CpuTarget haswell = v3("haswell", "haswell");

  return {v2("x86-64", "generic"),
          v2("x86-64-v2", "generic"),
          v3("x86-64-v3", "generic"),
          haswell,
          znver3,
          v4("x86-64-v4", "generic"),
          skylake,
          cascadelake,
          icelake,
          znver4,
          sapphire,
          znver5};
}

const std::array<CpuTarget, 12>& table() {
  static const std::array<CpuTarget, 12> rows = make_table();
  return rows;
}

#if defined(__x86_64__)
struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf = 0) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// The register sets that the operating system saves (XCR0).
uint64_t saved_state() {
  uint32_t lo = 0, hi = 0;
  __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t{hi} << 32) | lo;
}

bool bit(unsigned word, int n) { return (word >> n) & 1; }

// Whether this process may use AMX tile registers. Linux requires a request, arch_prctl(ARCH_REQ_XCOMP_PERM,
// XTILEDATA), which applies to all threads and to child processes.
bool may_use_tiles(uint64_t saved) {
  constexpr uint64_t kTileState = 0x60000;
  return (saved & kTileState) == kTileState && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

std::string_view native_name() {
  const Cpuid one = cpuid(1), seven = cpuid(7), extended = cpuid(0x80000001);
  const bool v2 = bit(one.c, 9) && bit(one.c, 19) && bit(one.c, 20) && bit(one.c, 23);
  if (!v2) return "x86-64";
  const uint64_t saved = bit(one.c, 27) ? saved_state() : 0;
  const bool ymm = (saved & 6) == 6, zmm = (saved & 0xe6) == 0xe6;
  const bool v3 = ymm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(one.c, 22) &&
                  bit(seven.b, 5) && bit(seven.b, 3) && bit(seven.b, 8) && bit(extended.c, 5);
  if (!v3) return "x86-64-v2";
  const bool v4 =
      zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 28) && bit(seven.b, 30) && bit(seven.b, 31);
  const bool amd = cpuid(0).b == 0x68747541;  // "Auth"
  unsigned family = (one.a >> 8) & 15;
  if (family == 15) family += (one.a >> 20) & 255;
  // vaes, vpclmulqdq: in Zen 3 and newer, and in Ice Lake and newer.
  const bool vaes = bit(seven.c, 9) && bit(seven.c, 10);
  if (!v4) return amd && family >= 25 && vaes ? "znver3" : "x86-64-v3";
  const bool vnni = bit(seven.c, 11), vbmi2 = bit(seven.c, 6) && vaes && bit(seven.c, 8);
  const bool bf16 = bit(cpuid(7, 1).a, 5);
  if (amd && vbmi2 && vnni && bf16) {
    const bool avx_vnni = bit(cpuid(7, 1).a, 4);  // the runtime requires it beyond Zen 4
    return family >= 26 && avx_vnni ? "znver5" : "znver4";
  }
  const bool tiles = bit(seven.d, 22) && bit(seven.d, 24) && bit(seven.d, 25) && may_use_tiles(saved);
  if (!amd && vbmi2 && vnni && bf16 && bit(seven.d, 23) && tiles)
    return "sapphirerapids";  // with AVX512-FP16
  if (!amd && vbmi2 && vnni && bit(seven.b, 29)) return "icelake-server";
  if (!amd) return vnni ? "cascadelake" : "skylake-avx512";
  return "x86-64-v4";
}
#else
std::string_view native_name() { return "x86-64"; }
#endif

}  // namespace

std::span<const CpuTarget> cpu_targets() { return table(); }

const CpuTarget& cpu_target(std::string_view name) {
  const std::string_view wanted = name == "native" ? native_name() : name;
  for (const CpuTarget& row : table()) {
    if (row.name == wanted) return row;
  }
  fail(ErrorKind::kUsage, "unknown-cpu", cat("unknown processor '", name, "'"),
       "use native, " + join(table(), ", ", [](const CpuTarget& row) { return row.name; }));
}

}  // namespace stridec
