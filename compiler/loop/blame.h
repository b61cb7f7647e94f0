// Errors about a nest name the model's nodes that it computes.
#pragma once

#include "compiler/base/diagnostic.h"
#include "compiler/loop/program.h"

namespace stridec::loop {

// Fills `where.node`, unless something closer to the error did.
void blame(Error& error, const Nest& nest);

// f(), whose errors are about this nest.
template <class F>
decltype(auto) blaming(const Nest& nest, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    blame(error, nest);
    throw;
  }
}

}  // namespace stridec::loop
