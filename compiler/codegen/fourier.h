// Emits the routine "fourier" (loop/library.def), for any target.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Pastes loop/fourier.h with one row per vector lane (a scalar for a single row). A task has `lanes` rows;
// `tasks` is the head of the loop over a variable `task`.
void print_fourier(KernelText& text, const loop::Program& program, const loop::Call& call,
                   const std::string& tasks, int lanes);
// The piece of scratch that print_fourier() uses.
sym::Expr fourier_scratch(const loop::Program& program, const loop::Call& call, int lanes);

}  // namespace stridec::codegen
