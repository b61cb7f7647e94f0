// Constant tensors that importers build from attributes and initializers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// Rank 1 unless `shape` is given.
Term float_table(Builder& b, const std::vector<double>& values, DType dtype, Shape shape = {});
Term integer_table(Builder& b, const std::vector<int64_t>& values, DType dtype = DType::kI64,
                   Shape shape = {});
// The values of an attribute of floats or of its `_as_tensor` variant; empty if neither exists.
std::vector<double> float_attribute(const Context& c, const std::string& name);
// All values of a constant tensor of floats or integers.
std::vector<double> float_values(const Tensor& tensor);
std::vector<int64_t> integer_values(const Tensor& tensor);

// Looks up each element of x. Each table has pairs of a key and a position; floating-point x use `floats`,
// others `integers`. Gives the position, or -1 if no key matches. NaN matches NaN.
Term find_number(Term x, std::vector<std::pair<double, int64_t>> floats,
                 std::vector<std::pair<int64_t, int64_t>> integers);

// Applies ai.onnx.ml's post_transform to scores [rows, classes]: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO,
// PROBIT.
Term post_transform(const Context& c, Term scores, const std::string& kind);

}  // namespace stridec::onnx
