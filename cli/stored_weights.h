// What `compile` says when an artifact stores many more bytes of weights than the model has.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace stridec::cli {

struct StoredWeights {
  uint64_t of_model = 0, stored = 0;
  uint64_t winograd = 0;  // of `stored`: in the form for Winograd's algorithm
};
StoredWeights stored_weights(const Compilation& made);

// How much larger than the model's the stored weights are, and why; "" if they are not much larger.
std::string growth_text(const StoredWeights& weights);

}  // namespace stridec::cli
