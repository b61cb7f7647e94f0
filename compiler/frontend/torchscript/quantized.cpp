// Linear layers of torch.ao.quantization.quantize_dynamic.
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/builtins.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/quantization.h"

namespace stridec::torchscript {
namespace {

using namespace ops;
using VK = Value::Kind;
using IK = Item::Kind;
using graph::OpKind;

constexpr int64_t kI8 = 1;  // the number of an element type (element_type.h)

[[noreturn]] void unsupported(const std::string& what) {
  Evaluator::unsupported(what, "save the module before it is quantised, or quantise its linear layers only");
}

// An item of a packed object's state as a tensor. Of a quantised one: its integers.
Term tensor_of(Evaluator& e, const Value& packed, const Value& item) {
  if (item.is_tensor()) return aten::read(e.b, item.tensor);
  if (!item.is(VK::kStored)) unsupported(cat("packed weights with ", kind_name(item)));
  Value own = item;
  own.stored = std::make_shared<Item>(*item.stored);
  if (own.stored->tensor.quantized) own.stored->tensor.element_type = kI8;
  own.stored->tensor.quantized = false;
  own.text = cat(packed.object->path, ".", &item == &packed.object->fields.at("1") ? "bias" : "weight");
  return aten::read(e.b, e.loaded(own).tensor);
}

struct Packed {
  Term weight;  // [outputs, inputs]: integers, or floats
  std::optional<Term> scale, zero, bias;
};
Packed unpack(Evaluator& e, const Value& packed) {
  if (!packed.is(VK::kObject) || !packed.object->fields.contains("0") || !packed.object->fields.contains("1"))
    unsupported(cat(kind_name(packed), " is not a packed weight"));
  const Value& weight = packed.object->fields.at("0");
  const Value& bias = packed.object->fields.at("1");
  Packed out{.weight = tensor_of(e, packed, weight), .scale = {}, .zero = {}, .bias = {}};
  if (!bias.is_none()) out.bias = tensor_of(e, packed, bias);
  if (!weight.is(VK::kStored) || !weight.stored->tensor.quantized) return out;
  // (per_tensor_affine, scale, zero point), or (per_channel_affine, scales, zero points, axis).
  const std::vector<ItemRef>& quantizer = weight.stored->tensor.quantizer->items;
  if (quantizer.size() < 3) unsupported("a quantised weight without a scale");
  if (quantizer[1]->kind == IK::kFloat) {
    out.scale = number(e.b, DType::kF32, quantizer[1]->number);
    out.zero = Term(e.b, e.b.elements({quantizer[2]->integer}, {}, DType::kI8));
    return out;
  }
  if (quantizer.size() < 4 || quantizer[3]->integer != 0) unsupported("a weight quantised along its inputs");
  const auto parameter = [&](const ItemRef& item, const char* name, DType to) {
    const Value value = e.from_pickle(item, cat(packed.object->path, ".weight.", name));
    return cast(aten::read(e.b, e.loaded(value).tensor), to, false);
  };
  out.scale = parameter(quantizer[1], "scale", DType::kF32);
  out.zero = parameter(quantizer[2], "zero_point", DType::kI8);
  return out;
}

// The range of x and 0 in 8 bits, or 7 with `reduced`. The zero point is the one that rounds less.
Quantized quantize_input(Term x, bool reduced) {
  constexpr double kLeastScale = 6.1e-5;
  const Dims all = all_dims(x.rank());
  const double most = reduced ? 127 : 255;
  const Term low = minimum(reduce_min(x, all), 0), high = maximum(reduce_max(x, all), 0);
  const Term scale = maximum((high - low) / most, kLeastScale);
  const Term below = low / scale, above = high / scale;
  const Term from_low = -below, from_high = subtract_from(most, above);
  const Term nearer = less(abs(below), abs(above) + most);
  const Term zero = minimum(maximum(apply(OpKind::kRound, select(nearer, from_low, from_high)), 0), most);
  const Term q = minimum(maximum(apply(OpKind::kRound, x * divide_into(1, scale)) + zero, 0), 255);
  return {cast(q, DType::kU8, false), scale, cast(zero, DType::kU8, false)};
}

Term linear(Evaluator& e, Term x, const Packed& w, bool reduced) {
  const Term columns = transpose(w.weight, 0, 1);
  if (!w.scale) {
    const Term y = matmul(x, cast(columns, x.dtype(), false));
    return w.bias ? y + *w.bias : y;
  }
  graph::Shape shape = x.shape();
  shape.back() = w.weight.dim(0);
  const Term rows = reshape(x, {e.b.simplify(count(x.shape(), 0, x.rank() - 1)), x.dim(x.rank() - 1)});
  const Quantized q = quantize_input(rows, reduced);
  return reshape(quantized_matmul({q.value, q.scale, q.zero}, {columns, *w.scale, w.zero}, w.bias), shape);
}

}  // namespace

std::optional<Value> call_quantized(Evaluator& e, const std::string& name, const Arguments& given) {
  const bool relu = name == "linear_relu_dynamic" || name == "linear_relu_dynamic_fp16";
  if (!relu && name != "linear_dynamic" && name != "linear_dynamic_fp16") return std::nullopt;
  if (given.values.size() < 2) unsupported(cat("quantized.", name, " of these arguments"));
  const Value x = e.loaded(given.values[0]);
  if (x.is_failed() || given.values[1].is_failed()) return Value::failed();
  if (!x.is_tensor()) unsupported(cat("quantized.", name, " of ", kind_name(x)));
  const bool reduced = given.values.size() > 2 && given.values[2].integer.is_const(1);
  e.b.set_origin(cat("node ", e.calls++, " '", e.object_path(), "/", name, "' (quantized.", name, ")"));
  const Term input = aten::read(e.b, x.tensor);
  if (input.dtype() != DType::kF32) unsupported(cat("quantized.", name, " of numbers that are not f32"));
  const Term y = linear(e, input, unpack(e, given.values[1]), reduced);
  return Value(aten::fresh(relu ? maximum(y, 0) : y));
}

}  // namespace stridec::torchscript
