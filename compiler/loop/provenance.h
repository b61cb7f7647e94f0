// Adds the model's nodes that a nest computes to errors about the nest.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/loop/program.h"

namespace stridec::loop {

// The nest's nodes for messages, in the model's order: "node 3 'a', 7 more, node 12 'b'"; "" if there are
// none.
std::string nodes_of(const Nest& nest);
std::string nodes_of(std::vector<std::string> nodes);

// Fills `where.node`, unless it has been filled closer to the error.
void add_provenance(Error& error, const Nest& nest);

// Runs f() and attributes its errors to this nest.
template <class F>
decltype(auto) with_provenance(const Nest& nest, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    add_provenance(error, nest);
    throw;
  }
}

}  // namespace stridec::loop
