// Statements for several neighbouring values of one index at once: unit-stride loads (masked alike for all of them) and
// stores go by vectors of up to
// 16 bytes, what lies between them element by element in registers.
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
  std::vector<const loop::Stmt*> vectors;  // loads and stores that go by vectors
  // What must hold for that: sizes, and buffers on multiples of 16 bytes.
  std::vector<sym::Expr> conditions;
  std::vector<loop::BufferId> aligned;
};

// Along `var`, of that extent; nothing where no access would gain. `facts` know every index of the block.
// `width`: that many elements at a time instead of as many as the accesses gain by, also where none does.
std::optional<Strip> plan_strip(const loop::Program& program, const loop::Nest& nest,
                                const loop::Block& block, sym::Expr var, sym::Expr extent,
                                const sym::Facts& facts, int width = 0);

// Prints the block for var = first .. first + width - 1 (C text, a multiple of width) in an unrolled loop over u, the
// distance from the first. `held` names the vector of a load that is in
// registers already (Vec<storage, width>), "" where it is not. `each` prints what follows the statements of one value.
// `when`: the C condition on which vectors are stored, "": always. `down`: from the last value to the first.
void print_strip(KernelText& text, Body& body, const loop::Program& program, const loop::Block& block,
                 const Strip& strip, const std::string& first,
                 const std::function<std::string(const loop::Stmt&)>& held = {},
                 const std::function<void()>& each = {}, const std::string& when = {}, bool down = false);

// Types and functions that the text uses, for finish().
std::string_view strip_declarations();

}  // namespace stridec::codegen::cuda
