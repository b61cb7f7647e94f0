// What attention by warp groups asks of the hardware: factors as the copy engine's tensors, and products of warp groups.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash.h"
#include "compiler/sym/facts.h"

namespace stridec::codegen::cuda {

// A factor as a tensor: the depth, the lines, and whatever of the batch moves it.
struct FlashSource {
  TensorMap map;
  std::vector<sym::Expr> coordinates;  // of the dims behind the first two
};

// With boxes of `box` lines. Nothing where the engine cannot take it.
std::optional<FlashSource> flash_source(const kernels::Flash& flash, const kernels::Flash::Operand& operand,
                                        int64_t depth, sym::Expr lines, int box, const sym::Facts& facts);

// d = (keep ? d : 0) + a b: both from shared memory, along the depth. Then the same with a from registers and b along
// its columns.
std::string flash_products(int keys, int width, DType dtype);

}  // namespace stridec::codegen::cuda
