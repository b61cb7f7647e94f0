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

// Keys are unsigned integers in the order of the elements: u32, or u64 where elements need them.
struct SortKey {
  std::string type;
  int bytes;                       // how many low bytes of it tell elements apart
  std::string everything() const;  // C text of these bytes, set
};
SortKey sort_key(DType dtype);
// key_at(i) of the row x, whose elements are `inner` apart: NaN above everything, -0 equal to 0; `flip` (no bits, or
// everything()) reverses the order.
void print_sort_key(KernelText& text, DType dtype);

}  // namespace stridec::codegen
