// The states of several programs that run in one context: states of one name are one state.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

struct ModuleStates {
  struct State {
    const Program* program;  // the first one that has the state
    BufferId buffer;
  };
  std::vector<State> all;            // in the order in which the programs list them
  std::map<std::string, int> index;  // into `all`, by name

  // Per state of the program: its index. The program has one of the names that were given.
  int index_of(const Program& program, BufferId state) const { return index.at(program[state].name); }
};

// Throws a kDoesNotFit Error if two programs disagree on the dtype, sizes or initial value of a state.
ModuleStates module_states(std::span<const Program* const> programs);

}  // namespace stridec::loop
