// The statements of the routine "fourier" (loop/library.def), the same on every machine.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// The text of loop/fourier.h with a row in each lane of a vector, a scalar where there is one row. `lanes` rows make a task;
// `tasks` is the head of the loop over a variable `task`.
void print_fourier(KernelText& text, const loop::Program& program, const loop::Call& call,
                   const std::string& tasks, int lanes);

}  // namespace stridec::codegen
