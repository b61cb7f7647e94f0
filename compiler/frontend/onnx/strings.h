// Tensors of strings: an index tensor (i64) into a pool of byte rows; there is no string dtype.
//
// Operators that move elements (Reshape, Gather, Concat, ...) move indices; only operators on string contents
// read the pool. Rows are UTF-8, zero-padded to the pool's width: the layout of NumPy's S dtype. As an
// artifact's input or output, a string tensor is u8 [shape..., bytes]. An input's width is the symbol
// NAME.bytes; an output's width is derived. Strings contain no zero byte.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

struct Strings {
  Term index;  // i64 [shape...]
  Term pool;   // u8 [rows, bytes]

  operator Slot() const { return Slot::strings(index, pool); }
};

Strings constant_strings(Builder& b, const std::vector<std::string>& texts, Shape shape);
Strings strings_of(const Context& c, size_t input);  // throws Error if the input is not a string tensor
Strings strings_of(Builder& b, const Slot& slot);
// Conversion from and to u8 [shape..., bytes].
Strings from_bytes(Term bytes);
Term to_bytes(const Strings& s);

// The position of each string in `keys` (the last of equal keys) or -1, as i64 of s's shape. Binary search by
// hash, verified by comparison.
Term find_in(const Strings& s, const std::vector<std::string>& keys);

// Imports a node with string inputs that only moves elements (on the indices) or compares them. None for
// other operators.
std::optional<Outputs> move_strings(Context& c);
Outputs equal_strings(Context& c);

// The class label of each index (i64), from attribute `ints` or `strings`, whichever exists; the index itself
// if neither does.
Slot class_labels(const Context& c, Term index, const char* ints, const char* strings);

}  // namespace stridec::onnx
