// Selects the emitter of a nest by its schedule.
#include <algorithm>

#include "compiler/codegen/cuda/attention/flash.h"
#include "compiler/codegen/cuda/attention/flash_backward.h"
#include "compiler/codegen/cuda/attention/streamed_chain.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/packed_weights/packed_weights.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/codegen/cuda/reduction/reduction.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/flash.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/kernels/streamed_chain.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {

DeviceNest emit_nest(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  if (kernels::is_matrix(nest.schedule)) return emit_matrix(program, nest, target);
  if (kernels::is_packed_weights(nest.schedule)) return emit_packed_weights(program, nest, target);
  if (kernels::is_flash(nest.schedule)) return emit_flash(program, nest, target);
  if (nest.schedule.kernel == kernels::kFlashBackward) return emit_flash_backward(program, nest, target);
  if (nest.schedule.kernel == kernels::kStreamedChain) return emit_streamed_chain(program, nest, target);
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  if (plan.tile) return emit_tiles(program, nest, target);
  const bool scans = std::any_of(nest.body.begin(), nest.body.end(), [](const loop::Stmt& stmt) {
    return std::holds_alternative<loop::Scan>(stmt.node);
  });
  if (plan.team > 1)
    return scans ? emit_scans(program, nest, target) : emit_cooperative(program, nest, target);
  if (!plan.points.empty()) return emit_windows(program, nest, target);
  return emit_points(program, nest, target);
}

}  // namespace stridec::codegen::cuda
