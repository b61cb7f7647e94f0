#include "compiler/base/gpu_target.h"

#include <algorithm>
#include <array>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec {
namespace {

constexpr int kKib = 1 << 10, kMib = 1 << 20;

std::array<GpuTarget, 7> make_table() {
  GpuTarget sm80{.name = "sm_80",
                 .capability = 80,
                 .shared_bytes = 163 * kKib,
                 .shared_bytes_sm = 164 * kKib,
                 .threads_sm = 2048,
                 .blocks_sm = 32,
                 .tensor_flops = 2048,
                 .scalar_flops = 128};
  GpuTarget ptx = sm80;  // for devices without a matching row
  ptx.name = "ptx";
  ptx.ptx = true;
  ptx.shared_bytes = 99 * kKib;
  ptx.shared_bytes_sm = 100 * kKib;
  ptx.threads_sm = 1536;
  ptx.blocks_sm = 16;
  GpuTarget sm86{
      .name = "sm_86", .capability = 86, .multiprocessors = 84, .memory_gb_s = 900, .l2_bytes = 6 * kMib};
  GpuTarget sm89{.name = "sm_89",
                 .capability = 89,
                 .blocks_sm = 24,
                 .fp8_mma = true,
                 .multiprocessors = 128,
                 .memory_gb_s = 950,
                 .l2_bytes = 72 * kMib};
  GpuTarget sm90a{.name = "sm_90a",
                  .capability = 90,
                  .exact = true,
                  .shared_bytes = 227 * kKib,
                  .shared_bytes_sm = 228 * kKib,
                  .threads_sm = 2048,
                  .blocks_sm = 32,
                  .tma = true,
                  .clusters = true,
                  .wgmma = true,
                  .fp8_mma = true,
                  .dependent_launch = true,
                  .multiprocessors = 132,
                  .memory_gb_s = 4200,
                  .l2_bytes = 50 * kMib,
                  .tensor_flops = 4096};
  GpuTarget sm100a = sm90a;
  sm100a.name = "sm_100a";
  sm100a.capability = 100;
  sm100a.wgmma = false;
  sm100a.tcgen05 = true;
  sm100a.multiprocessors = 148;
  sm100a.memory_gb_s = 7500;
  sm100a.l2_bytes = 126 * kMib;
  sm100a.tensor_flops = 8192;
  GpuTarget sm120a = sm89;
  sm120a.name = "sm_120a";
  sm120a.capability = 120;
  sm120a.exact = sm120a.tma = sm120a.clusters = sm120a.dependent_launch = true;
  sm120a.multiprocessors = 170;
  sm120a.memory_gb_s = 1700;
  sm120a.l2_bytes = 96 * kMib;
  return {ptx, sm80, sm86, sm89, sm90a, sm100a, sm120a};
}

}  // namespace

std::span<const GpuTarget> gpu_targets() {
  static const std::array<GpuTarget, 7> rows = make_table();
  return rows;
}

const GpuTarget& gpu_target(std::string_view name) {
  const auto rows = gpu_targets();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const GpuTarget& row) { return row.name == name; });
  if (found != rows.end()) return *found;
  fail(ErrorKind::kUsage, "unknown-gpu", cat("unknown GPU architecture '", name, "'"),
       "use " + join(rows, ", ", [](const GpuTarget& row) { return row.name; }));
}

}  // namespace stridec
