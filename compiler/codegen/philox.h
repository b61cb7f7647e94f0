// Emits the routine "philox_draw" (loop/library.def), for any target.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Pastes loop/philox.h. A task draws one element, and the first one advances the state; `tasks` is the head
// of the loop over a variable `task`, of philox_tasks() tasks.
void print_philox_draw(KernelText& text, const loop::Call& call, const std::string& tasks);
sym::Expr philox_tasks(const loop::Call& call);

}  // namespace stridec::codegen
