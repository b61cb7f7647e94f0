#include "compiler/schedule/cost/gemm_cost.h"

#include <algorithm>
#include <cmath>

namespace stridec::schedule {
namespace {

constexpr double kFmaLatency = 4, kAddLatency = 1;
// Where units that do not multiply take a part: execution units for vectors over those that multiply, and
// instructions per cycle, with those of the loop over k.
constexpr double kUnits = 2, kIssued = 5, kLoop = 4;

// For tile registers (Intel's optimization manual, "Intel AMX": a tile multiplication starts every 16 cycles,
// one per row, and takes 52; a load reads two rows per cycle, a store writes one).
constexpr double kProductLatency = 52;
constexpr double kNearRow = 0.5, kFarRow = 1.4;
constexpr double kLateSums = 60;
constexpr double kTotal = 5;  // to add up the lanes of an accumulator of a deep kernel

}  // namespace

double sum_cycles(const kernels::GemmKernel& kernel, double rows, double k, bool far,
                  const CpuTarget& target) {
  const double steps = std::ceil(k / kernel.step());
  if (kernel.tiles) {
    const double products = rows * kernel.vectors;
    const double loads = rows * kFarRow + kernel.vectors * kernels::kTileRows * (far ? kFarRow : kNearRow);
    return steps * std::max({products, loads, kProductLatency});
  }
  const double rate = kernel.a == DType::kBF16 ? target.bf16_dots_per_cycle : target.fma_per_cycle;
  // Without an instruction for both, units that do not multiply add products and widen b.
  const bool adds = kernel.adds_apart(target);
  const double widened = kernel.widens_b() ? kernel.vectors : 0;
  const double products = (kernel.pairs ? 2 : 1) * rows * kernel.vectors,
               vectors = products + (adds ? rows * kernel.vectors : 0) + widened,
               fma = std::max(products, vectors / kUnits) / rate;
  const double loads = (rows + kernel.vectors) * kernel.vector_bytes / target.load_bytes_per_cycle;
  double step = std::max({fma, loads, adds ? kAddLatency : kFmaLatency});
  if (adds) step = std::max(step, (vectors + rows + kLoop) / kIssued);
  // Signed bytes are made unsigned; the correction is a sum of its own.
  if (kernel.a == DType::kI8) step += (rows + kernel.vectors) / target.fma_per_cycle;
  return steps * step;
}

double tile_call_cycles(const kernels::GemmKernel& kernel, double rows) {
  if (kernel.deep) return rows * kernel.vectors * kTotal;
  return kernel.tiles ? kLateSums + rows * kernel.vectors * (1 + kNearRow) : 0;
}

}  // namespace stridec::schedule
