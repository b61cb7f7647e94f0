// Integer inputs whose elements the caller guarantees (`--input-value`), for every frontend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// The constant that replaces the input in the graph. The input stays, and the run compares its elements with
// the values. `input`: none if the model's input is not a tensor. `values`: one for all elements, or one for
// each. Throws a usage Error if the input is not a tensor of integers, is too large, or has another size.
Term fixed_input(graph::Builder& b, const std::string& name, std::optional<Term> input,
                 const std::vector<int64_t>& values);

}  // namespace stridec::ops
