// Operators of other namespaces than aten.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/ops/composite/grouped_product.h"

namespace stridec::aten {
namespace {

using namespace ops;

// transformers: experts' products over rows sorted by expert.
Results grouped_mm(Context& c) { return {grouped_product(c.in("input"), c.in("weight"), c.in("offs"))}; }

// quantized_decomposed: scales and zero points are numbers, tensors of one element, or one per channel.
Term parameter(Context& c, const char* name, DType dtype, Term x) {
  const Term p = cast(as_term(c.b, c.arg(name)), dtype, false);
  if (!c.names("axis")) return p.rank() == 0 ? p : reshape(p, {});
  Shape shape(x.shape().size(), 1);
  shape[static_cast<size_t>(c.dim("axis", x.rank()))] = p.dim(0);
  return reshape(p, shape);
}
const char* either(const Context& c, const char* a, const char* b) { return c.names(a) ? a : b; }

Results quantize(Context& c) {
  const Term x = c.in("input"), w = widen(x);
  const Term scale = parameter(c, either(c, "scale", "scales"), w.dtype(), x);
  const Term zero = parameter(c, either(c, "zero_point", "zero_points"), w.dtype(), x);
  // PyTorch multiplies by the reciprocal, which rounds differently from a division.
  const Term q = apply(OpKind::kRound, w * divide_into(1, scale)) + zero;
  return {cast(minimum(maximum(q, c.number("quant_min")), c.number("quant_max")), *c.dtype("dtype"), false)};
}
Results dequantize(Context& c) {
  const Term x = c.in("input");
  const DType to = c.names("out_dtype") ? c.dtype("out_dtype").value_or(DType::kF32) : DType::kF32;
  const Term scale = parameter(c, either(c, "scale", "scales"), DType::kF32, x);
  Term w = cast(x, DType::kF32, false);
  const char* zero = either(c, "zero_point", "zero_points");
  if (c.has(zero)) w = w - parameter(c, zero, DType::kF32, x);
  return {cast(w * scale, to, false)};
}

constexpr Row kRows[] = {
    {"dequantize_per_channel", dequantize}, {"dequantize_per_tensor", dequantize},
    {"grouped_mm_fallback", grouped_mm},    {"quantize_per_channel", quantize},
    {"quantize_per_tensor", quantize},
};

}  // namespace

std::span<const Row> extension_rows() { return kRows; }

}  // namespace stridec::aten
