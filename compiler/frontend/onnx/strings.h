// Inputs and attributes that are strings.
//
// As an artifact's input or output, a string tensor is u8 [shape..., bytes]. An input's width is the symbol
// NAME.bytes; an output's width is derived.
#pragma once

#include <string>

#include "compiler/frontend/onnx/import_context.h"
#include "compiler/ops/composite/labels.h"

namespace stridec::onnx {

ops::Strings strings_of(const Context& c, size_t input);  // throws Error if the input is not a string tensor
ops::Strings strings_of(Builder& b, const Slot& slot);
// A tensor of numbers or of strings.
ops::TermOrStrings numbers_or_strings(const Context& c, size_t input);

// Imports a node with string inputs that only moves elements (on the indices) or compares them. None for
// other operators.
std::optional<Outputs> move_strings(Context& c);

// The labels in attribute `strings`, or else in `ints`; empty if neither exists.
ops::Labels class_labels_of(const Context& c, const char* ints, const char* strings);

}  // namespace stridec::onnx
