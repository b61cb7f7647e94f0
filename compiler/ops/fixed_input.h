// Integer inputs whose elements the caller guarantees (`--input-value`), for every frontend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// The constant that replaces the input in the graph. The input stays, and the run compares its elements with
// the values. `input`: none if the model's input is not a tensor. `values`: one for each element. Throws a
// usage Error if the input is not a tensor of integers or bools, is too large, or does not hold the values.
Term fixed_input(graph::Builder& b, const std::string& name, std::optional<Term> input,
                 const std::vector<int64_t>& values);

// How the inputs are fixed whose elements the condition depends on: "--input-value c=true". Empty if it
// depends on none that can be fixed.
std::string fixing_options(const graph::Builder& b, sym::Expr condition);

}  // namespace stridec::ops
