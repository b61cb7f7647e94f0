// The importer's tables, one per operator family: one row per operator and range of versions.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/frontend/common/operator_info.h"
#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

using ImportFn = Outputs (*)(Context& context);

inline constexpr int kAnyLater = std::numeric_limits<int>::max();

struct Row {
  std::string_view op_type;
  ImportFn import;
  int since = 1;  // versions of the domain, both inclusive
  int until = kAnyLater;
  std::string_view domain = "";
};

// The row for the node's operator and version; null if there is none.
const Row* find_row(const Node& node);

// What is not supported of an operator, or why the operator is not supported at all. The only list of these
// texts; 'stridec ops', 'stridec check' and the test of ONNX's registry use it.
struct Limit {
  std::string_view domain, op_type;
  const char* text;
};
std::span<const Limit> limits();
// Empty if there is no known limit.
std::string_view limits_of(std::string_view domain, std::string_view op_type);

// For 'stridec ops': all operators that have a row or that ONNX defines, sorted by name.
std::vector<frontend::OperatorInfo> operators();

// The families. Add a new one here and to the list in import_rows.cpp.
std::span<const Row> pointwise_rows();
std::span<const Row> shape_rows();
std::span<const Row> indexing_rows();
std::span<const Row> reduction_rows();
std::span<const Row> contraction_rows();
std::span<const Row> window_rows();
std::span<const Row> normalization_rows();
std::span<const Row> resize_rows();
std::span<const Row> quantization_rows();
std::span<const Row> recurrent_rows();
std::span<const Row> control_flow_rows();
std::span<const Row> sequence_rows();
std::span<const Row> vision_rows();
std::span<const Row> signal_rows();
std::span<const Row> training_rows();
std::span<const Row> contrib_rows();
std::span<const Row> contrib_attention_rows();
std::span<const Row> contrib_quantized_rows();
std::span<const Row> contrib_misc_rows();
std::span<const Row> contrib_moe_rows();
std::span<const Row> tree_rows();
std::span<const Row> ml_rows();
std::span<const Row> svm_rows();
std::span<const Row> map_rows();
std::span<const Row> string_rows();

}  // namespace stridec::onnx
