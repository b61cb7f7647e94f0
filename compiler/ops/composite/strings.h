// Tensors of strings: an index tensor (i64) into a pool of byte rows; there is no string dtype.
//
// Operators that move elements (Reshape, Gather, Concat, ...) move indices; only operators on string contents
// read the pool. Rows are UTF-8, zero-padded to the pool's width: the layout of NumPy's S dtype. Strings
// contain no zero byte. Upper and lower case are those of ASCII.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Strings {
  Term index;  // i64 [shape...]
  Term pool;   // u8 [rows, bytes]
};
using TermOrStrings = std::variant<Term, Strings>;  // a tensor of numbers or of strings

Strings constant_strings(Builder& b, const std::vector<std::string>& texts, Shape shape);
// Conversion from and to u8 [shape..., bytes].
Strings from_bytes(Term bytes);
Term to_bytes(const Strings& s);

// Merges the pools into one, which it returns, and moves the indices.
Term join_pools(std::vector<Strings>& parts);
// s[at] for s [n] and at of any shape; `otherwise` where `at` is negative.
Strings take_strings(const Strings& s, Term at, const std::string& otherwise);

// The position of each string in `keys` (the last of equal keys) or -1, as i64 of s's shape. Binary search by
// hash, verified by comparison.
Term find_in(const Strings& s, const std::vector<std::string>& keys);

// Elementwise; shapes broadcast.
Term equal_strings(const Strings& x, const Strings& y);
Strings concat_strings(const Strings& x, const Strings& y);

enum class CaseChange { kNone, kLower, kUpper };
struct StringNormalization {
  std::vector<std::string> stop_words;  // left out
  bool case_sensitive = false;          // comparison with the stop words
  CaseChange change = CaseChange::kNone;
};
// The strings of s [n] or [1, n]: [kept] or [1, kept]. One empty string if none is kept.
Strings normalize_strings(const Strings& s, const StringNormalization& normalization);

struct SplitStrings {
  Strings parts;  // [shape..., most]: empty strings follow the substrings
  Term count;     // i64 [shape...]: the number of substrings
};
// Splits at each `delimiter`, at runs of white space if it is empty; at most `limit` times.
SplitStrings split_strings(const Strings& s, const std::string& delimiter, std::optional<int64_t> limit);

// Whether the whole string matches a regular expression (regex.h).
Term matches_regex(const Strings& s, const std::string& pattern);

}  // namespace stridec::ops
