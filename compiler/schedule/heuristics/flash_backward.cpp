#include "compiler/schedule/heuristics/flash_backward.h"

#include "compiler/kernels/flash_backward.h"

namespace stridec::schedule {

bool fits_flash_backward(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                         std::string* reason) {
  const auto refuse = [&](const char* why) {
    if (reason) *reason = why;
    return false;
  };
  if (!target.wgmma) return refuse("the target has no kernel for it");
  const auto flash = kernels::match_flash_backward(program, nest, reason);
  if (!flash) return false;
  if (flash->dtype != DType::kF16 && flash->dtype != DType::kBF16)
    return refuse("its factors are not 16-bit floats");
  if (flash->o_dtype != flash->dtype && flash->o_dtype != DType::kF32)
    return refuse("its result is of another type than its factors");
  if (flash->depth != 64 && flash->depth != 128) return refuse("its head size is neither 64 nor 128");
  if (!kernels::copies_in_tiles(program, *flash))
    return refuse("a factor's rows do not begin at multiples of 16 bytes");
  return true;
}

}  // namespace stridec::schedule
