// Sizes of a context: the symbols in the shapes of states. Memory of states is allocated when a context is
// created, so these symbols are bound then, and every run has the same values of them.
#pragma once

#include <span>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

bool is_context_size(const Program& program, sym::Expr symbol);

// Whether the symbol has its value before a run begins: an input or the context determines it.
bool is_bound_before_run(const Program& program, const Symbol& symbol);

// The sizes of a context that runs all of these programs, in the order of their symbols.
std::vector<sym::Expr> context_sizes(std::span<const Program* const> programs);

}  // namespace stridec::loop
