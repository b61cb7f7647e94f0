// Emits the routine "suppress" (non-maximum suppression, loop/library.def), for any target.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// One row per task: each box is compared with those kept so far, which are contiguous in scratch memory.
// `tasks` is the head of the loop over a variable `task`, of arguments[0] tasks.
void print_suppress(KernelText& text, const loop::Call& call, const std::string& tasks);
// The piece of scratch that print_suppress() uses: corners and areas of the boxes kept so far.
sym::Expr suppress_scratch(const loop::Call& call);

}  // namespace stridec::codegen
