// Tables of numbers in attributes and initializers.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/import_context.h"
#include "compiler/ops/composite/lookup.h"
#include "compiler/ops/tables.h"

namespace stridec::onnx {

// The values of an attribute of floats or of its `_as_tensor` variant; empty if neither exists.
std::vector<double> float_attribute(const Context& c, const std::string& name);
// All values of a constant tensor of floats or integers.
std::vector<double> float_values(const Tensor& tensor);
std::vector<int64_t> integer_values(const Tensor& tensor);

// Applies ai.onnx.ml's post_transform to scores [rows, classes]: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO,
// PROBIT.
Term post_transform(const Context& c, Term scores, const std::string& kind);

}  // namespace stridec::onnx
