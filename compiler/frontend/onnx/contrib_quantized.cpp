// Quantised operators of onnxruntime's com.microsoft domain, which its quantiser emits for int8 models.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/block_quantization.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/quantization.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

std::optional<Term> scalar(const Context& c, size_t i) {
  return c.has(i) ? std::optional(reshape(c.in(i), {})) : std::nullopt;
}
// Dequantises input i; i + 1 is its scale, i + 2 its zero point.
Term real(const Context& c, size_t i) { return dequantize(c.in(i), *scalar(c, i + 1), scalar(c, i + 2)); }
// Quantises y; inputs i and i + 1 are scale and zero point. Without a zero point, the dtype is `otherwise`.
Term quantized(const Context& c, Term y, size_t i, DType otherwise) {
  return quantize(y, *scalar(c, i), scalar(c, i + 1), c.has(i + 1) ? c.in(i + 1).dtype() : otherwise, true);
}

template <OpKind kind>
Outputs binary(Context& c) {
  return {quantized(c, apply(kind, real(c, 0), real(c, 3)), 6, c.in(0).dtype())};
}
Outputs q_sigmoid(Context& c) { return {quantized(c, sigmoid(real(c, 0)), 3, c.in(0).dtype())}; }
Outputs q_leaky_relu(Context& c) {
  return {quantized(c, leaky_relu(real(c, 0), c.number("alpha", 0.01f)), 3, c.in(0).dtype())};
}
Outputs q_softmax(Context& c) {
  const Term x = real(c, 0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  Dims dims{axis};
  if (c.integer("opset", 13) < 13)
    for (int64_t d = axis + 1; d < x.rank(); ++d) dims.push_back(d);
  return {quantized(c, softmax(x, dims), 3, c.in(0).dtype())};
}
Outputs q_where(Context& c) {
  return {quantized(c, select(c.in(0), real(c, 1), real(c, 4)), 7, c.in(1).dtype())};
}
Outputs q_concat(Context& c) {
  std::vector<Term> parts;
  for (size_t i = 2; i + 2 < c.input_count(); i += 3)
    parts.push_back(quantized(c, real(c, i), 0, c.in(1).dtype()));
  if (parts.empty()) c.does_not_fit("nothing to join");
  return {concat(parts, c.axis(c.integer("axis"), parts[0].rank()))};
}
Outputs q_reduce_mean(Context& c) {
  const Term x = real(c, 0);
  Dims dims = c.axes(c.integers("axes"), x.rank());
  if (dims.empty())
    for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d);
  std::sort(dims.begin(), dims.end());
  return {quantized(c, reduce_mean(x, dims, c.integer("keepdims", 1) != 0), 3, c.in(0).dtype())};
}

// Imports an ai.onnx operator on [n, channels, spatial...] for data that may be channels-last.
Term standard(Context& c, const char* op, int version, Term x, bool last) {
  Node node = c.node;
  node.op_type = op;
  node.domain = "";
  node.version = version;
  node.inputs = {"x"};
  const Outputs out = c.importer().import_as(c, node, {last ? channels_second(x) : x});
  const Term y(c.b, out.at(0).tensor);
  return last ? channels_last(y) : y;
}
Outputs q_average_pool(Context& c) {
  const Term y = standard(c, "AveragePool", 11, real(c, 0), c.integer("channels_last", 0) != 0);
  return {quantized(c, y, 3, c.in(0).dtype())};
}
Outputs q_global_average_pool(Context& c) {
  const Term y = standard(c, "GlobalAveragePool", 1, real(c, 0), c.integer("channels_last", 0) != 0);
  return {quantized(c, y, 3, c.in(0).dtype())};
}
Outputs nhwc_max_pool(Context& c) { return {standard(c, "MaxPool", 12, c.in(0), true)}; }

// ---- GEMMs -----------------------------------------------------------------------------------------------

Outputs matmul_integer_to_float(Context& c) {
  const QuantizedOperand a{.value = c.in(0), .scale = c.in(2), .zero = c.optional(4)},
      b{.value = c.in(1), .scale = c.in(3), .zero = c.optional(5)};
  return {quantized_matmul(a, b, c.optional(6))};
}

Outputs dynamic_quantize_matmul(Context& c) {
  const Quantized a = quantize_dynamically(c.in(0));
  const QuantizedOperand b{.value = c.in(1), .scale = c.in(2), .zero = c.optional(3)};
  return {quantized_matmul({.value = a.value, .scale = a.scale, .zero = a.zero}, b, c.optional(4))};
}

Outputs q_gemm(Context& c) {
  const auto operand = [&](size_t i, const char* flag) -> QuantizedOperand {
    const Term value = c.integer(flag, 0) ? transpose(c.in(i), 0, 1) : c.in(i);
    return {.value = value, .scale = c.in(i + 1), .zero = c.optional(i + 2)};
  };
  const QuantizedOperand a = operand(0, "transA"), b = operand(3, "transB");
  const Term y = quantized_gemm(a, b, c.optional(6), c.number("alpha", 1));
  return {c.has(7) ? quantized(c, y, 7, DType::kU8) : y};
}

// ---- block-quantised weights of a few bits ---------------------------------------------------------------

Outputs matmul_nbits(Context& c) {
  const int64_t bits = c.integer("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) c.unsupported(cat("weights of ", bits, " bits are not supported"));
  const BlockWeights weights{.packed = c.in(1),
                             .scales = c.in(2),
                             .zeros = c.optional(3),
                             .block_of_column = c.optional(4),
                             .n = c.integer("N"),
                             .k = c.integer("K"),
                             .bits = bits,
                             .block = c.integer("block_size")};
  constexpr int64_t kBytes = 4;  // accuracy_level 4 allows 8-bit integer arithmetic
  return {block_matmul(c.in(0), weights, c.optional(5), c.integer("accuracy_level", 0) == kBytes)};
}

Outputs gather_block_quantized(Context& c) {
  const int64_t bits = c.integer("bits", 4);
  const Term values = c.in(0);
  const bool bytes = values.dtype() == DType::kU8;
  if (bytes && bits != 2 && bits != 4 && bits != 8) c.unsupported(cat("weights of ", bits, " bits"));
  const BlockTable table{.values = values,
                         .scales = c.in(2),
                         .zeros = c.optional(3),
                         .bits = bits,
                         .block = c.integer("block_size", 128),
                         .rows_dim = c.axis(c.integer("gather_axis", 0), values.rank()),
                         .blocks_dim = c.axis(c.integer("quantize_axis", bytes ? -1 : 1), values.rank())};
  return {gather_blocks(table, c.in(1))};
}

Outputs matmul_bnb4(Context& c) {
  const int64_t kind = c.integer("quant_type");
  if (kind != 0 && kind != 1) c.does_not_fit(cat("quant_type is ", kind, ", not 0 (FP4) or 1 (NF4)"));
  const Term a = c.in(0);
  // The weights [N, K] are those of the transposed operand.
  const Term rows = four_bit_weights(c.in(1), c.in(2), kind == 0 ? FourBitCode::kFp4 : FourBitCode::kNf4,
                                     c.integer("N"), c.integer("K"), c.integer("block_size"));
  const Term w = cast(transpose(rows, 0, 1), a.dtype());
  return {linear(a, c.integer("transB", 1) ? w : transpose(w, 0, 1), c.optional(3))};
}

constexpr Row kRows[] = {
    {"DynamicQuantizeMatMul", dynamic_quantize_matmul, 1, kAnyLater, kMicrosoft},
    {"GatherBlockQuantized", gather_block_quantized, 1, kAnyLater, kMicrosoft},
    {"MatMulIntegerToFloat", matmul_integer_to_float, 1, kAnyLater, kMicrosoft},
    {"MatMulBnb4", matmul_bnb4, 1, kAnyLater, kMicrosoft},
    {"MatMulNBits", matmul_nbits, 1, kAnyLater, kMicrosoft},
    {"NhwcMaxPool", nhwc_max_pool, 1, kAnyLater, kMicrosoft},
    {"QGemm", q_gemm, 1, kAnyLater, kMicrosoft},
    {"QLinearAdd", binary<OpKind::kAdd>, 1, kAnyLater, kMicrosoft},
    {"QLinearAveragePool", q_average_pool, 1, kAnyLater, kMicrosoft},
    {"QLinearConcat", q_concat, 1, kAnyLater, kMicrosoft},
    {"QLinearGlobalAveragePool", q_global_average_pool, 1, kAnyLater, kMicrosoft},
    {"QLinearLeakyRelu", q_leaky_relu, 1, kAnyLater, kMicrosoft},
    {"QLinearMul", binary<OpKind::kMul>, 1, kAnyLater, kMicrosoft},
    {"QLinearReduceMean", q_reduce_mean, 1, kAnyLater, kMicrosoft},
    {"QLinearSigmoid", q_sigmoid, 1, kAnyLater, kMicrosoft},
    {"QLinearSoftmax", q_softmax, 1, kAnyLater, kMicrosoft},
    {"QLinearWhere", q_where, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_quantized_rows() { return kRows; }

}  // namespace stridec::onnx
