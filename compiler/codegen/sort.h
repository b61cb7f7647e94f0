// The statements of the routines "sort" and "topk" (loop/library.def), the same on every machine.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// Merge sort of (key, index) pairs, one row a task: stable, so equal elements keep their order in either direction.
// `tasks` is the head of the loop over a variable `task`, of arguments[0] * arguments[2] tasks.
void print_sort(KernelText& text, const loop::Program& program, const loop::Call& call,
                const std::string& tasks);

}  // namespace stridec::codegen
