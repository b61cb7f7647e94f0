// The statements of the routine "suppress" (loop/library.def), the same on every machine.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// One row a task: each box is compared with those that are kept so far, which lie together in scratch memory. `tasks` is
// the head of the loop over a variable `task`, of arguments[0] tasks.
void print_suppress(KernelText& text, const loop::Call& call, const std::string& tasks);

}  // namespace stridec::codegen
