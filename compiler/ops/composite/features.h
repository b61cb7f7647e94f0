// Preparation of rows of features [rows, features], as in ai.onnx.ml. A vector is one row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

Term as_rows(Term x);  // a vector as [1, features]

Term binarize(Term x, double threshold);  // 1 above the threshold, else 0, in x's dtype
// (x - offset) * scale in f32. Each has one value per feature, one for all, or none: 0 and 1.
Term scale_features(Term x, const std::vector<double>& offset, const std::vector<double>& scale);

// x with `values` (one per feature or one for all) in place of `missing`, which may be NaN for floats. `what`
// names the values in error messages.
Term impute(Term x, double missing, const std::vector<double>& values, const std::string& what);
Term impute(Term x, int64_t missing, const std::vector<int64_t>& values, const std::string& what);

// Rows divided by their maximum, sum of absolute values, or Euclidean norm, in f32; rows where it is 0 stay.
enum class RowNorm { kMax, kL1, kL2 };
Term normalize_rows(Term x, RowNorm norm);

// The features at each index of `index`, which may have any shape.
Term select_features(Term x, Term index);
// Rows of all parts, in f32. Of part i, the first sizes[i] features, or all if there is no such size.
Term join_features(const std::vector<Term>& parts, const std::vector<int64_t>& sizes);

}  // namespace stridec::ops
