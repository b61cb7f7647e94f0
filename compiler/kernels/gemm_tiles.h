// The text of micro-kernels on tile registers (gemm.h): Intel AMX, "Intel 64 and IA-32 Architectures Software Developer's
// Manual", volume 1, chapter 18, and the optimization manual's chapter on it.
#pragma once

#include <string>

#include "compiler/kernels/gemm.h"

namespace stridec::kernels {

std::string tile_product_text(const GemmKernel& kernel);  // product_text()
std::string tiles_text(const GemmKernel& kernel, const CpuTarget& target);

}  // namespace stridec::kernels
