// The states and the replaceable parameters of several programs that run in one context. Values with one name
// are shared.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// What identifies a value among programs: its name, and how many earlier values of its program have this
// name (weights of two branches of an If may share one).
using ValueKey = std::pair<std::string, int>;
std::vector<ValueKey> value_keys(const Program& program, std::span<const BufferId> values);

struct ModuleValues {
  struct Value {
    const Program* program;  // the first one that has the value
    size_t place;            // in the program's list of its kind
    BufferId buffer;
  };
  std::vector<Value> all;         // in the order in which the programs list them
  std::map<ValueKey, int> index;  // into `all`

  // The index of a state in `all`. The program is one of those given to module_states().
  int index_of(const Program& program, BufferId state) const { return index.at({program[state].name, 0}); }
};

// Throws a kDoesNotFit Error if two programs disagree on the dtype, sizes or initial value of a state.
ModuleValues module_states(std::span<const Program* const> programs);
// The same for Program::parameters. A parameter of one program cannot have the name of another one's state.
ModuleValues module_parameters(std::span<const Program* const> programs);

}  // namespace stridec::loop
