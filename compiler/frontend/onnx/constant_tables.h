// Tables of numbers in attributes and initializers.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/import_context.h"
#include "compiler/ops/composite/scores.h"

namespace stridec::onnx {

// The values of an attribute of floats or of its `_as_tensor` variant; empty if neither exists.
std::vector<double> float_attribute(const Context& c, const std::string& name);
// All values of a constant tensor of floats or integers.
std::vector<double> float_values(const Tensor& tensor);
std::vector<int64_t> integer_values(const Tensor& tensor);

// ai.onnx.ml's attribute post_transform: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT.
ops::ScoreTransform score_transform(const Context& c, const std::string& name);

}  // namespace stridec::onnx
