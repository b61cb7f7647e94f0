// Hardware features of attention by warp groups: factors as TMA tensor maps, and wgmma products.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash.h"
#include "compiler/sym/facts.h"

namespace stridec::codegen::cuda {

// A factor as a tensor map: the depth, the lines, and the batch dims that it depends on.
struct FlashSource {
  TensorMap map;
  std::vector<sym::Expr> coordinates;  // of the dims after the first two
};

// The tensor map with boxes of `box` lines of 64 elements; nothing if TMA does not support it. The operand's
// base depends on the dims of `batch`.
std::optional<FlashSource> flash_source(DType dtype, const std::vector<loop::Dim>& batch,
                                        const kernels::Flash::Operand& operand, int64_t depth,
                                        sym::Expr lines, int box, const sym::Facts& facts);

// Operands of an instruction: before0after, before1after, ..., with commas between them.
std::string numbered(const char* before, int count, const char* after);

// Device functions for d = (keep ? d : 0) + a b, with both factors in shared memory along the depth, and for
// d += a b with a in registers and b along its columns.
std::string flash_products(int keys, int width, DType dtype);

}  // namespace stridec::codegen::cuda
