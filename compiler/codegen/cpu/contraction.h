// Contractions on the CPU: loops around the micro-kernels of kernels/gemm.h, by a plan (kernels/gemm_plan.h).
//
// A task is one batch point, one block of `tiles` register tiles of rows and one panel of columns. For each
// tile it gathers the addresses of its rows (a convolution's taps in the padding point to a row of zeros),
// the micro-kernel sums over k into a small buffer, and the rest of the nest's body (the epilogue) runs on
// that buffer, one vector of columns at a time.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// The nest's schedule is a kernels::GemmPlan. contraction_scratch: the kernel's Kernel::scratch_bytes.
Kernel emit_contraction(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
sym::Expr contraction_scratch(const loop::Program& program, const loop::Nest& nest);

}  // namespace stridec::codegen::cpu
