#include "compiler/codegen/cuda/attention/flash_backward.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_heads.h"
#include "compiler/codegen/cuda/attention/flash_backward_tiles.h"
#include "compiler/codegen/cuda/points/points.h"
#include "compiler/kernels/flash_backward.h"

namespace stridec::codegen::cuda {

DeviceNest emit_flash_backward(const loop::Program& program, const loop::Nest& nest,
                               const GpuTarget& target) {
  std::string reason;
  const auto flash = kernels::match_flash_backward(program, nest, &reason);
  STRIDEC_CHECK(flash.has_value(), cat("nest '", nest.name, "' is not a backward pass: ", reason));
  DeviceNest out;
  for (const auto form : {backward_of_heads, backward_of_tiles}) {
    if (out.is_complete()) break;
    if (auto choice = form(program, nest, *flash, target)) out.choices.push_back(*std::move(choice));
  }
  if (!out.is_complete()) {
    loop::Nest plain = nest;
    plain.schedule = {};
    DeviceNest loops = emit_points(program, plain, target);
    // Scratch is reserved for any choice. The loops keep all scores there, so they ask for it only where
    // they run.
    sym::Expr others = 1;
    for (const DeviceChoice& choice : out.choices)
      if (choice.aligned.empty()) others = sym::logical_and(others, sym::logical_not(choice.condition));
    for (DeviceChoice& choice : loops.choices) {
      for (DeviceKernel& kernel : choice.launches)
        kernel.workspace_bytes = sym::select(others, kernel.workspace_bytes, 0);
      out.choices.push_back(std::move(choice));
    }
  }
  return out;
}

}  // namespace stridec::codegen::cuda
