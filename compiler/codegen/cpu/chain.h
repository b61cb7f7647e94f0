// Chains of contractions (attention) on the CPU, by a plan (kernels/chain.h).
//
// A task is one batch point and one block of rows. Intermediates between links are in scratch, for the whole
// block: a link fills or reads them tile by tile through the micro-kernel, and row statements process them
// row by row. Panels of the column factors stay in scratch across blocks of the same batch point.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// The nest's schedule is a kernels::ChainPlan. chain_scratch: the kernel's Kernel::scratch_bytes.
Kernel emit_chain(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
sym::Expr chain_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);

}  // namespace stridec::codegen::cpu
