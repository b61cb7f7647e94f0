// Counts of n-grams: rows of tokens become rows of weights, one column per known n-gram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ops/composite/strings.h"

namespace stridec::ops {

// The known n-grams, of strings or of integers. The pool has all 1-grams, then all 2-grams, ...
struct Ngrams {
  std::vector<std::string> texts;     // the pool, if its tokens are strings
  Dims numbers;                       // the pool, if its tokens are integers
  Dims starts;                        // where the n-grams of each length start in the pool
  Dims columns;                       // per n-gram: its column; not empty
  std::vector<double> weights;        // per n-gram; empty: all are 1
  int64_t shortest = 1, longest = 1;  // counted lengths
  int64_t skips = 0;                  // up to this many tokens between two tokens of an n-gram are left out
};
enum class NgramWeighting { kCount, kPresence, kWeightedCount };  // kPresence is weighted too

// tokens [n] or [rows, n], of the pool's type: f32 [columns] or [rows, columns]. Throws Error for a pool that
// does not divide into n-grams.
Term count_ngrams(const TermOrStrings& tokens, const Ngrams& ngrams, NgramWeighting weighting);

}  // namespace stridec::ops
