// Tensors of strings, without a dtype for them: an index (i64) into a pool of rows of bytes.
//
// What moves elements (Reshape, Gather, Concat, ...) moves indices; only what looks into strings reads the
// pool. Rows are UTF-8, padded with zero bytes to the pool's width: the layout of NumPy's S dtype. At the
// artifact's border a string tensor is therefore u8 [shape..., bytes]: an input's width is the symbol
// NAME.bytes, an output's follows. Strings hold no zero byte.
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
Strings strings_of(const Context& c, size_t input);  // throws Error for what is no string tensor
Strings strings_of(Builder& b, const Slot& slot);
// From and to u8 [shape..., bytes].
Strings from_bytes(Term bytes);
Term to_bytes(const Strings& s);

// Where each string stands in `keys` (the last of equal ones), -1 where it does not; i64 of s's shape. A
// binary search by hash, verified by comparison.
Term find_in(const Strings& s, const std::vector<std::string>& keys);

// A node with string inputs that only moves elements, done on indices, or that compares them; none: the
// operator is no such one.
std::optional<Outputs> move_strings(Context& c);
Outputs equal_strings(Context& c);

// The class label of each index (i64): attribute `ints` or `strings`, whichever is there; the index itself if
// neither.
Slot class_labels(const Context& c, Term index, const char* ints, const char* strings);

}  // namespace stridec::onnx
