// Generates the text of micro-kernels on tile registers (gemm.h). Source: Intel AMX, "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 1, chapter 18, and the optimization manual's chapter on
// it.
#pragma once

#include <string>
#include <string_view>

#include "compiler/kernels/gemm.h"

namespace stridec::kernels {

// Tile register configuration, in the layout that the instruction reads.
constexpr std::string_view kTileShape = R"(
struct shape {
  unsigned char palette, start_row, reserved[14];
  unsigned short bytes[16];
  unsigned char rows[16];
};
)";

std::string tile_product_text(const GemmKernel& kernel);  // for product_text()
std::string tiles_text(const GemmKernel& kernel, const CpuTarget& target);

}  // namespace stridec::kernels
