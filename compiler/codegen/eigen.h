// Emits the routine "eigen" (loop/library.def), for any target.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Pastes loop/eigen.h. A task has one matrix; `tasks` is the head of the loop over a variable `task`.
void print_eigen(KernelText& text, const loop::Program& program, const loop::Call& call,
                 const std::string& tasks);
// The piece of scratch that print_eigen() uses.
sym::Expr eigen_scratch(const loop::Call& call);

}  // namespace stridec::codegen
