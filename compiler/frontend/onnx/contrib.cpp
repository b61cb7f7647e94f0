// Operators of onnxruntime's own domain that its optimiser and model builders write.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

Outputs op_gelu(Context& c) { return {gelu(c.has(1) ? c.in(0) + c.in(1) : c.in(0), false)}; }
Outputs fast_gelu(Context& c) { return {gelu(c.has(1) ? c.in(0) + c.in(1) : c.in(0), true)}; }
Outputs quick_gelu(Context& c) { return {silu(c.in(0), c.number("alpha", 1.702f))}; }
Outputs bias_add(Context& c) { return {c.in(0) + c.in(1) + c.in(2)}; }

Outputs fused_matmul(Context& c) {
  Term a = c.in(0), b = c.in(1);
  if (c.integer("transBatchA", 0) || c.integer("transBatchB", 0))
    c.unsupported("transposed batch dims of FusedMatMul are not supported");
  if (c.integer("transA", 0)) a = transpose(a, a.rank() - 2, a.rank() - 1);
  if (c.integer("transB", 0)) b = transpose(b, b.rank() - 2, b.rank() - 1);
  const double alpha = c.number("alpha", 1);
  const Term y = matmul(a, b);
  return {alpha == 1 ? y : y * alpha};
}

Outputs simplified_layer_norm(Context& c) {
  const Term x = c.in(0);
  Dims dims;
  for (int64_t d = c.axis(c.integer("axis", -1), x.rank()); d < x.rank(); ++d) dims.push_back(d);
  return {rms_norm(x, dims, c.number("epsilon", 1e-5f)) * c.in(1)};
}

// Residual and normalisation; the sum is output 3.
Outputs skip_layer_norm(Context& c) {
  Term x = c.in(0) + c.in(1);
  if (c.has(4)) x = x + c.in(4);
  const Normalized n = standardize(x, {x.rank() - 1}, c.number("epsilon", 1e-12f));
  Term y = n.value * c.in(2);
  if (c.has(3)) y = y + c.in(3);
  return {y, n.mean, n.inverse_deviation, x};
}
Outputs skip_simplified_layer_norm(Context& c) {
  Term x = c.in(0) + c.in(1);
  if (c.has(3)) x = x + c.in(3);
  const Term y = rms_norm(x, {x.rank() - 1}, c.number("epsilon", 1e-5f)) * c.in(2);
  return {y, Slot(), Slot(), x};
}

Outputs embed_layer_norm(Context& c) {
  const Term ids = c.in(0), words = c.in(2), positions = c.in(3);
  Term x = gather(words, ids, 0);
  if (c.has(8))
    x = x + gather(positions, c.in(8), 0);
  else
    x = x + slice(positions, 0, 0, ids.dim(1));
  if (c.has(1) && c.has(4)) x = x + gather(c.in(4), c.in(1), 0);
  const Term y = standardize(x, {x.rank() - 1}, c.number("epsilon", 1e-12f)).value * c.in(5) + c.in(6);
  Outputs out{y};
  if (c.wants(1)) {
    if (!c.has(7)) return {y, filled(c.b, {ids.dim(0)}, DType::kI32, 0), x};
    out.push_back(reduce_sum(c.in(7), {1}));
  } else {
    out.push_back(Slot());
  }
  out.push_back(x);
  return out;
}

// y = x * dequantised(B)^T: B [n, blocks, bytes] holds 2, 4 or 8-bit numbers, low bits first, with one scale
// a block.
Outputs matmul_nbits(Context& c) {
  const Term a = c.in(0), packed = c.in(1);
  const int64_t bits = c.integer("bits", 4), n = c.integer("N"), k = c.integer("K"),
                block = c.integer("block_size");
  if (bits != 2 && bits != 4 && bits != 8) c.unsupported(cat("weights of ", bits, " bits are not supported"));
  if (c.has(4)) c.unsupported("MatMulNBits with g_idx is not supported");
  const int64_t blocks = (k + block - 1) / block, per_byte = 8 / bits;
  const auto unpack = [&](Term bytes, const Shape& shape) {
    if (per_byte == 1) return reshape(bytes, shape);
    std::vector<Term> parts;
    for (int64_t i = 0; i < per_byte; ++i)
      parts.push_back(
          unsqueeze(apply(OpKind::kBitAnd, apply(OpKind::kShr, bytes, static_cast<double>(i * bits)),
                          static_cast<double>((1 << bits) - 1)),
                    {bytes.rank()}));
    return reshape(concat(parts, bytes.rank()), shape);
  };
  Term weights = cast(unpack(packed, {n, blocks, block}), DType::kF32);
  Term zero = c.number(DType::kF32, static_cast<double>(1 << (bits - 1)));
  if (c.has(3)) {
    const Term z = c.in(3);
    if (is_float(z.dtype())) {
      zero = cast(reshape(z, {n, blocks, 1}), DType::kF32);
    } else {
      const int64_t row_bytes = (blocks + per_byte - 1) / per_byte;
      const Term all = unpack(reshape(z, {n, row_bytes}), {n, row_bytes * per_byte});
      zero = cast(unsqueeze(slice(all, 1, 0, blocks), {2}), DType::kF32);
    }
  }
  weights = (weights - zero) * cast(reshape(c.in(2), {n, blocks, 1}), DType::kF32);
  const Term matrix = slice(reshape(weights, {n, blocks * block}), 1, 0, k);
  Term y = matmul(cast(a, DType::kF32), transpose(matrix, 0, 1));
  if (c.has(5)) y = y + cast(c.in(5), DType::kF32);
  return {cast(y, a.dtype())};
}

constexpr Row kRows[] = {
    {"BiasAdd", bias_add, 1, kAnyLater, kMicrosoft},
    {"BiasGelu", op_gelu, 1, kAnyLater, kMicrosoft},
    {"EmbedLayerNormalization", embed_layer_norm, 1, kAnyLater, kMicrosoft},
    {"FastGelu", fast_gelu, 1, kAnyLater, kMicrosoft},
    {"FusedMatMul", fused_matmul, 1, kAnyLater, kMicrosoft},
    {"Gelu", op_gelu, 1, kAnyLater, kMicrosoft},
    {"MatMulNBits", matmul_nbits, 1, kAnyLater, kMicrosoft},
    {"QuickGelu", quick_gelu, 1, kAnyLater, kMicrosoft},
    {"SimplifiedLayerNormalization", simplified_layer_norm},
    {"SkipLayerNormalization", skip_layer_norm, 1, kAnyLater, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", skip_simplified_layer_norm, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_rows() { return kRows; }

}  // namespace stridec::onnx
