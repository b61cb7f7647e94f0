// Aligns the rows of GEMM operands to 16 bytes.
//
//   b[i, k] f16 of [batch, 1003]: strides 1003, 1   ->   1008, 1
//
// Copy engines (TMA) and vector loads require aligned rows; tiles of other matrices are gathered element by
// element at a fraction of the speed. Scratch gets other strides, which changes no index. Weights get a copy,
// made by a nest of Program::prepack. The caller's 16-bit inputs are copied in the run if each element is
// read often enough that the copy costs less than it saves.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void align_rows(loop::Program& program);

}  // namespace stridec::schedule
