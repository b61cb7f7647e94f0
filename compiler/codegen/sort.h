// Emits the routines "sort" and "topk" (loop/library.def), for any target.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen {

// The arguments of either routine: the first `kept` elements of each row of n, in order.
struct SortArguments {
  explicit SortArguments(const loop::Call& call);
  bool all;  // sort: kept is n
  sym::Expr n, inner, kept, descending;
};

// One row per task, as pairs of key and index: an LSD radix sort (stable), or a heap selection if at most a
// quarter of the row is kept. Equal elements keep their order in both directions. `tasks` is
// the head of the loop over a variable `task`, of arguments[0] * arguments[2] tasks.
void print_sort(KernelText& text, const loop::Program& program, const loop::Call& call,
                const std::string& tasks);
// The pieces of scratch that print_sort() uses: two arrays of pairs, and the digits' counts.
std::vector<sym::Expr> sort_scratch(const loop::Program& program, const loop::Call& call);

// Sort keys are unsigned integers ordered like the elements: u32, or u64 for wide elements.
struct SortKey {
  std::string type;
  int bytes;                       // the number of low bytes that distinguish elements
  std::string everything() const;  // C text of a mask of these bytes
};
SortKey sort_key(DType dtype);
// Defines key_at(i) for a row x whose elements have stride `inner`: NaN sorts above everything, -0 equals 0.
// `flip` (0 or everything()) reverses the order.
void print_sort_key(KernelText& text, DType dtype);

}  // namespace stridec::codegen
