// The statements of the routines "sort" and "topk" (loop/library.def), the same on every machine.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// One row a task, as pairs of key and index: a radix sort (least byte first, which is stable), and where at most a quarter
// of a row is kept, of a heap that went over the row. Equal elements keep their order in either direction. `tasks` is the
// head of the loop over a variable `task`, of arguments[0] * arguments[2] tasks.
void print_sort(KernelText& text, const loop::Program& program, const loop::Call& call,
                const std::string& tasks);

}  // namespace stridec::codegen
