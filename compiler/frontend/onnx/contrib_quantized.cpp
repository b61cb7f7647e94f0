// Quantised operators of onnxruntime's com.microsoft domain, which its quantiser emits for int8 models.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/activations.h"
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
  const Term x = real(c, 0);
  return {quantized(c, select(less(x, 0), x * c.number("alpha", 0.01f), x), 3, c.in(0).dtype())};
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

// Applies an ai.onnx operator for [n, channels, spatial...] to data that may be channels-last.
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

std::optional<Term> vector(std::optional<Term> v) {  // a scalar, or one value per column
  return v && (v->rank() == 0 || v->dim(v->rank() - 1).is_const(1)) ? std::optional(reshape(*v, {})) : v;
}

Outputs matmul_integer_to_float(Context& c) {
  const Term sums = cast(
      matmul(centered(c.in(0), vector(c.optional(4)), true), centered(c.in(1), vector(c.optional(5)), false)),
      DType::kF32);
  Term a_scale = *vector(c.in(2));
  if (a_scale.rank() == 1) a_scale = unsqueeze(a_scale, {1});
  const Term y = sums * (a_scale * *vector(c.in(3)));
  return {c.has(6) ? y + c.in(6) : y};
}

Outputs dynamic_quantize_matmul(Context& c) {
  const Quantized a = quantize_dynamically(c.in(0));
  const Term sums = cast(
      matmul(centered(a.value, a.zero, true), centered(c.in(1), vector(c.optional(3)), false)), DType::kF32);
  const Term y = sums * (a.scale * *vector(c.in(2)));
  return {c.has(4) ? y + c.in(4) : y};
}

Outputs q_gemm(Context& c) {
  const auto turned = [&](size_t input, const char* flag) {
    return c.integer(flag, 0) ? transpose(c.in(input), 0, 1) : c.in(input);
  };
  const Term a = centered(turned(0, "transA"), vector(c.optional(2)), true),
             b = centered(turned(3, "transB"), vector(c.optional(5)), false);
  Term sums = matmul(a, b);
  if (c.has(6)) sums = sums + c.in(6);
  const Term y = cast(sums, DType::kF32) * (reshape(c.in(1), {}) * *vector(c.in(4)) * c.number("alpha", 1));
  return {c.has(7) ? quantized(c, y, 7, DType::kU8) : y};
}

// ---- block-quantised weights of a few bits ---------------------------------------------------------------

// Rounds x to integers of [-127, 127] times one scale per `block` elements of the last dim.
Term in_byte_blocks(Term x, int64_t block) {
  Shape blocks = x.shape();
  const sym::Expr count = sym::floordiv(blocks.back(), block);
  blocks.back() = count;
  blocks.push_back(block);
  const Term apart = reshape(x, blocks);
  const Term scale = reduce_max(abs(apart), {apart.rank() - 1}, kKeep) / 127;
  const Term numbers = select(equal(scale, 0), 0, apply(OpKind::kRound, apart / scale));
  return reshape(numbers * scale, x.shape());
}

// y = x * dequantised(B)^T. B [n, blocks, bytes] holds 2-, 4- or 8-bit values with one scale per block.
Outputs matmul_nbits(Context& c) {
  const Term a = c.in(0), packed = c.in(1);
  const int64_t bits = c.integer("bits", 4), n = c.integer("N"), k = c.integer("K"),
                block = c.integer("block_size");
  if (bits != 2 && bits != 4 && bits != 8) c.unsupported(cat("weights of ", bits, " bits are not supported"));
  if (block < 1 || n < 0 || k < 0) c.does_not_fit("block_size, N or K is out of range");
  const int64_t blocks = (k + block - 1) / block, per_byte = 8 / bits;
  Term weights = cast(reshape(unpack(packed, bits), {n, blocks, block}), DType::kF32);
  Term zero = c.number(DType::kF32, static_cast<double>(1 << (bits - 1))),
       scale = cast(reshape(c.in(2), {n, blocks, 1}), DType::kF32);
  if (c.has(3)) {
    const Term z = c.in(3);
    if (is_float(z.dtype())) {
      zero = cast(reshape(z, {n, blocks, 1}), DType::kF32);
    } else {
      const int64_t row_bytes = (blocks + per_byte - 1) / per_byte;
      const Term all = unpack(reshape(z, {n, row_bytes}), bits);
      zero = cast(unsqueeze(slice(all, 1, 0, blocks), {2}), DType::kF32);
    }
  }
  if (c.has(4)) {  // block index of each column
    const Term group = slice(cast(c.in(4), DType::kI64), 0, 0, k);
    const auto of_column = [&](Term t) { return t.rank() ? gather(reshape(t, {n, blocks}), group, 1) : t; };
    weights = slice(reshape(weights, {n, blocks * block}), 1, 0, k);
    weights = (weights - of_column(zero)) * of_column(scale);
  } else {
    weights = slice(reshape((weights - zero) * scale, {n, blocks * block}), 1, 0, k);
  }
  // accuracy_level 4 allows 8-bit integer arithmetic: the data are quantised in the weights' blocks, as
  // onnxruntime does. Not for half floats, which are used on GPUs, where this gains nothing.
  constexpr int64_t kBytes = 4;
  const bool rounds = c.integer("accuracy_level", 0) == kBytes && a.dtype() == DType::kF32 && k > 0 &&
                      k % block == 0 && !c.has(4) && a.rank() > 0 && a.dim(a.rank() - 1).is_const(k);
  // As in onnxruntime, dequantised weights have the data's dtype. The GEMM accumulates in f32.
  const Term x = rounds ? in_byte_blocks(a, block) : a;
  Term y(c.b, dot_general(c.b, x, transpose(cast(weights, a.dtype()), 0, 1),
                          {{}, {}, {a.rank() - 1}, {0}, rounds ? block : 0}, DType::kF32));
  if (c.has(5)) y = y + cast(c.in(5), DType::kF32);
  return {cast(y, a.dtype())};
}

// Gathers rows of a quantised table; scales apply to blocks along quantize_axis.
Outputs gather_block_quantized(Context& c) {
  const Term packed = c.in(0), index = c.in(1), scales = c.in(2);
  const int64_t bits = c.integer("bits", 4), block = c.integer("block_size", 128);
  const bool bytes = packed.dtype() == DType::kU8;
  if (bytes && bits != 2 && bits != 4 && bits != 8) c.unsupported(cat("weights of ", bits, " bits"));
  const Term data = bytes ? unpack(packed, bits) : packed;
  const int64_t axis = c.axis(c.integer("gather_axis", 0), data.rank()),
                quantized_axis = c.axis(c.integer("quantize_axis", bytes ? -1 : 1), data.rank());
  if (axis == quantized_axis) c.does_not_fit("rows are gathered along the dim that is divided into blocks");
  const auto rows = [&](Term t) { return gather(t, index, axis); };
  const int64_t along = quantized_axis < axis ? quantized_axis : quantized_axis + index.rank() - 1;
  const Term values = rows(data);
  // Repeats the value of each block for each of its elements.
  const auto stretched = [&](Term t) {
    const auto d = static_cast<size_t>(along);
    Shape split = t.shape(), wide = split, joined = split;
    split.insert(split.begin() + along + 1, 1);
    wide.insert(wide.begin() + along + 1, block);
    joined[d] = joined[d] * block;
    return slice(reshape(expand(reshape(t, split), wide), joined), along, 0, values.shape()[d]);
  };
  Term zero = c.number(DType::kF32, bytes ? static_cast<double>(1 << (bits - 1)) : 0);
  if (c.has(3)) {
    Term z = c.in(3);
    if (z.dtype() == DType::kU8 && bits < 8)
      z = slice(unpack(z, bits), z.rank() - 1, 0, scales.dim(scales.rank() - 1));
    zero = stretched(cast(rows(z), DType::kF32));
  }
  const Term y = (cast(values, DType::kF32) - zero) * stretched(cast(rows(scales), DType::kF32));
  return {cast(y, scales.dtype())};
}

constexpr Row kRows[] = {
    {"DynamicQuantizeMatMul", dynamic_quantize_matmul, 1, kAnyLater, kMicrosoft},
    {"GatherBlockQuantized", gather_block_quantized, 1, kAnyLater, kMicrosoft},
    {"MatMulIntegerToFloat", matmul_integer_to_float, 1, kAnyLater, kMicrosoft},
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
