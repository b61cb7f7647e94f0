// A program for some sizes alone.
#pragma once

#include <map>
#include <string>

#include "compiler/loop/program.h"

namespace stridec::loop {

using SymbolValues = std::map<std::string, int64_t>;  // by name

// The symbols are constants in every shape, nest and step. The table of symbols and the guards stay, so that the
// result can take the general program's place wherever the sizes are these. Throws Error kUsage for a name that is no
// size of the inputs, and for a value outside of its range.
Program specialized(const Program& program, const SymbolValues& values);

// The condition under which it may: "batch == 1 and sequence == 128".
sym::Expr condition_of(const SymbolValues& values);

}  // namespace stridec::loop
