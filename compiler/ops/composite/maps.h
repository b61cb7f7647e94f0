// Maps: a tensor of keys [n], unique and in any order, and a tensor of values [n]; n is known at run time.
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/composite/labels.h"

namespace stridec::ops {

struct Map {
  TermOrStrings keys, values;
};
// What stands for the value of a key that the map lacks: `number` or `text`, by the type of the values.
struct MissingValue {
  double number = 0;
  std::string text;
};

// The values [1, keys] in the order of `vocabulary`, whose keys may repeat. Keys that are not in the
// vocabulary are dropped.
TermOrStrings values_of_vocabulary(const Map& map, Labels vocabulary, const MissingValue& missing);
// The values [1, n] by ascending key. Keys are integers.
TermOrStrings values_by_key(const Map& map, const MissingValue& missing);
// The values [1, columns], each at the column given by its key, an integer that the run checks not to be
// negative. Keys of at least `columns` are dropped.
TermOrStrings values_at_key(const Map& map, int64_t columns, const MissingValue& missing);

}  // namespace stridec::ops
