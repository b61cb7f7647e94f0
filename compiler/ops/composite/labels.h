// Labels known when the graph is built: their positions, and the labels at positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ops/composite/strings.h"

namespace stridec::ops {

// Labels of one type: at most one list has elements.
struct Labels {
  std::vector<std::string> strings;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  DType dtype = DType::kF32;  // of the integers or floats

  size_t size() const { return strings.size() + integers.size() + floats.size(); }
};

// The position of each element of x in `keys` (of x's type) or -1, as i64.
Term find_label(const TermOrStrings& x, const Labels& keys);
// values[place]; the only label of `otherwise` where place is -1.
TermOrStrings labels_at(Term place, Labels values, const Labels& otherwise);
// The label of each class, an i64 index; the index itself if there are no labels.
TermOrStrings class_labels(Term index, const Labels& labels);

// f32 [shape..., keys]: 1 at the position of each element of x. A floating-point x is compared as integers.
// `strict`: the run fails if an element is not in `keys`.
Term one_hot_labels(const TermOrStrings& x, const Labels& keys, bool strict);

}  // namespace stridec::ops
