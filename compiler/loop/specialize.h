// Specialises a program to given sizes.
#pragma once

#include <map>
#include <string>

#include "compiler/loop/program.h"

namespace stridec::loop {

using SymbolValues = std::map<std::string, int64_t>;  // by name

// Replaces the symbols by constants in every shape, nest and step. The symbol table and the guards stay, so
// that the result can replace the general program whenever the sizes match. Throws Error kUsage for a name
// that is not a size of the inputs, and for a value outside its range.
Program specialized(const Program& program, const SymbolValues& values);

// The condition under which the specialised program applies: "batch == 1 and sequence == 128".
sym::Expr condition_of(const SymbolValues& values);

}  // namespace stridec::loop
