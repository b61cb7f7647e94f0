// Constant tensors with values known when the graph is built.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Rank 1 unless `shape` is given. Values are rounded to dtype.
Term float_table(Builder& b, const std::vector<double>& values, DType dtype, Shape shape = {});
Term integer_table(Builder& b, const std::vector<int64_t>& values, DType dtype = DType::kI64,
                   Shape shape = {});

// The value of a float or integer that is known when the graph is built; none if x has several elements.
std::optional<double> known_number(Term x);

}  // namespace stridec::ops
