// Calls an operator of PyTorch: fills in defaults, finds the row, and applies what in-place and `out=`
// operators write.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

struct NamedValue {
  std::string name;  // empty: positional
  Value value;
};

// Null if no row serves the operator.
const Row* find_row(const Schema& schema);

// Throws Error: kUnsupported for an operator without a row, kDoesNotFit for arguments that contradict it.
Results call(Builder& b, const Schema& schema, std::vector<NamedValue> arguments);

// The families. Add a new one here and to the list in call.cpp.
std::span<const Row> pointwise_rows();
std::span<const Row> activation_rows();
std::span<const Row> arithmetic_rows();
std::span<const Row> reduction_rows();
std::span<const Row> view_rows();
std::span<const Row> alias_rows();
std::span<const Row> shape_rows();
std::span<const Row> creation_rows();
std::span<const Row> indexing_rows();
std::span<const Row> contraction_rows();
std::span<const Row> factorization_rows();
std::span<const Row> convolution_rows();
std::span<const Row> pooling_rows();
std::span<const Row> normalization_rows();
std::span<const Row> attention_rows();
std::span<const Row> resize_rows();
std::span<const Row> recurrent_rows();
std::span<const Row> order_rows();
std::span<const Row> histogram_rows();
std::span<const Row> assertion_rows();
std::span<const Row> complex_rows();
std::span<const Row> loss_rows();
std::span<const Row> vision_rows();
std::span<const Row> extension_rows();
std::span<const Row> statistics_rows();
std::span<const Row> assemble_rows();
std::span<const Row> special_rows();
std::span<const Row> random_rows();
std::span<const Row> transformer_rows();

}  // namespace stridec::aten
