// Constant tables that importers make from attributes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// Rank 1 unless a shape is given.
Term float_table(Builder& b, const std::vector<double>& values, DType dtype, Shape shape = {});
Term integer_table(Builder& b, const std::vector<int64_t>& values, DType dtype = DType::kI64,
                   Shape shape = {});
// An attribute of floats, or its `_as_tensor` twin; empty if neither is there.
std::vector<double> float_attribute(const Context& c, const std::string& name);
// All values of a constant tensor of floats or integers.
std::vector<double> float_values(const Tensor& tensor);
std::vector<int64_t> integer_values(const Tensor& tensor);

// Where each number of x stands, by the list of its kind (floats for floating-point x): pairs of a key and its place; -1
// where it is none of them. NaN is found as NaN.
Term find_number(Term x, std::vector<std::pair<double, int64_t>> floats,
                 std::vector<std::pair<int64_t, int64_t>> integers);

// Scores [rows, classes] as ai.onnx.ml's post_transform wants them: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO,
// PROBIT.
Term post_transform(const Context& c, Term scores, const std::string& kind);

}  // namespace stridec::onnx
