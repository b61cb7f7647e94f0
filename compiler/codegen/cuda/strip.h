// Statements for several neighbouring values of one index at once: unit-stride loads and stores go by vectors of up to
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
std::optional<Strip> plan_strip(const loop::Program& program, const loop::Nest& nest,
                                const loop::Block& block, sym::Expr var, sym::Expr extent,
                                const sym::Facts& facts);

// Where a load's vector is kept for a later loop, or comes from: an lvalue of type Vec<storage, width>, "" nowhere.
struct Kept {
  std::string vector;
  bool filled = false;  // it holds the elements already
};

// Prints the block for var = first .. first + width - 1 (C text, a multiple of width). `each` prints what follows the
// statements of one value.
void print_strip(KernelText& text, Body& body, const loop::Program& program, const loop::Block& block,
                 const Strip& strip, const std::string& first,
                 const std::function<Kept(const loop::Stmt&)>& kept = {},
                 const std::function<void()>& each = {});

// Types and functions that the text uses, for finish().
std::string_view strip_declarations();

}  // namespace stridec::codegen::cuda
