// Vectorised access: prints statements for several neighbouring values of one index. Unit-stride loads (with
// a common mask) and stores use vectors of up to 16 bytes; everything else runs per element in registers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

struct Strip {
  sym::Expr var;
  int width = 1;
  std::vector<const loop::Stmt*> vectors;  // vectorised loads and stores
  // Conditions for vectorising them: on sizes, and that the buffers begin at multiples of 16 bytes.
  std::vector<sym::Expr> conditions;
  std::vector<loop::BufferId> aligned;
};

// Whether the nest, at each of its points, loads an element of the buffer before it stores to the same one,
// and touches no other: loads of several points may then come before all of their stores.
bool is_updated_in_place(const loop::Nest& nest, loop::BufferId id);

// Plans vectors along `var`, which has this extent; nothing if no access would gain. `facts` know every index
// of the block. `width`: this many elements at a time instead of as many as the accesses allow, even if no
// access gains.
std::optional<Strip> plan_strip(const loop::Program& program, const loop::Nest& nest,
                                const loop::Block& block, sym::Expr var, sym::Expr extent,
                                const sym::Facts& facts, int width = 0);

// What is special about printing a strip.
struct StripOptions {
  // The name of a vector (Vec<storage, width>) that already holds a load, or "".
  std::function<std::string(const loop::Stmt&)> held;
  std::function<void()> each;  // prints what follows the statements of one value
  std::string when;            // the C condition under which vectors are stored; "": always
  bool down = false;           // iterates from the last value to the first
};

// Prints the block for var = first .. first + width - 1 (`first` is C text, a multiple of width) in an
// unrolled loop over u, the offset from `first`.
void print_strip(KernelText& text, Body& body, const loop::Block& block, const Strip& strip,
                 const std::string& first, const StripOptions& options = {});

// Device types and functions that the text uses, for finish().
std::string_view strip_declarations();

}  // namespace stridec::codegen::cuda
