// Errors about a nest name the model's nodes that it computes.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/loop/program.h"

namespace stridec::loop {

// The nest's nodes as people are told of them, in the model's order: "node 3 'a', 7 more, node 12 'b'"; "" where it has none.
std::string nodes_of(const Nest& nest);
std::string nodes_of(std::vector<std::string> nodes);

// Fills `where.node`, unless something closer to the error did.
void add_provenance(Error& error, const Nest& nest);

// f(), whose errors are about this nest.
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
