// Sort, top-k, suppression of boxes and Fourier transforms: a thread per row, pairs of key and index in the workspace.
// Stable, so equal elements keep their order in either direction.
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/fourier.h"
#include "compiler/codegen/sort.h"
#include "compiler/codegen/suppress.h"

namespace stridec::codegen::cuda {

bool has_routine(std::string_view routine) {
  return routine == "sort" || routine == "topk" || routine == "suppress" || routine == "fourier";
}

DeviceNest emit_routine(const loop::Program& program, const loop::Call& call, const GpuTarget& target) {
  STRIDEC_CHECK(has_routine(call.routine), call.routine);
  const bool suppresses = call.routine == "suppress", fourier = call.routine == "fourier";
  KernelText text(program, kCudaText);
  const sym::Expr rows = suppresses || fourier ? call.arguments[0] : call.arguments[0] * call.arguments[2];
  const std::string tasks = text.size(rows);
  const std::string loop = cat("for (int64_t task = blockIdx.x * (int64_t)64 + threadIdx.x; task < ", tasks,
                               "; task += gridDim.x * (int64_t)64)");
  if (suppresses)
    print_suppress(text, call, loop);
  else if (fourier)
    print_fourier(text, program, call, loop, 1);
  else
    print_sort(text, program, call, loop);
  const sym::Expr blocks = sym::min(sym::ceildiv(rows, 64), 4 * target.multiprocessors);
  Geometry geometry{.grid = {blocks, 1, 1}, .threads = 64};
  geometry.waits = target.dependent_launch;
  geometry.scratch_owners = blocks * 64;
  geometry.scratch_owner = "blockIdx.x * (int64_t)64 + threadIdx.x";
  return only(finish(text, std::move(geometry)));
}

}  // namespace stridec::codegen::cuda
