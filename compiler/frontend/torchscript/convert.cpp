#include "compiler/frontend/torchscript/convert.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/element_type.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using AK = aten::Value::Kind;

}  // namespace

aten::Value other_value(std::string text) {
  aten::Value v;
  v.kind = AK::kOther;
  v.text = std::move(text);
  return v;
}

aten::Value dtype_value(sym::Expr number) {
  const auto type = number.is_const() ? element_type(number.value()) : std::nullopt;
  if (!type)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("elements of type ", number.is_const() ? element_type_name(number.value()) : "of the run",
             " are not supported"));
  aten::Value v = aten::Value::of_dtype(type->dtype);
  v.complex_dtype = type->complex;
  return v;
}

aten::Value memory_format_value(sym::Expr number) {
  if (number.is_const(0)) return other_value("contiguous");
  if (number.is_const(2)) return other_value("channels_last");
  if (number.is_const(3)) return other_value("channels_last_3d");
  return other_value("preserve");
}

aten::Value to_aten(aten::Builder& b, const Value& value) {
  switch (value.kind) {
    case VK::kNone: return {};
    case VK::kTensor: return aten::Value(value.tensor);
    case VK::kInt: return aten::Value::integer_of(b.simplify(value.integer));
    case VK::kBool: return aten::Value::condition(b.simplify(value.integer));
    case VK::kFloat: return aten::Value::number_of(value.number);
    case VK::kComplex: {
      aten::Value v = aten::Value::number_of(value.number);
      v.kind = AK::kComplex;
      v.imaginary = value.imaginary;
      return v;
    }
    case VK::kString: return aten::Value::string(value.text);
    case VK::kDevice: return other_value(value.text);
    case VK::kList:
    case VK::kTuple: {
      std::vector<aten::Value> items;
      for (const Value& item : value.items()) items.push_back(to_aten(b, item));
      return aten::Value::list(std::move(items));
    }
    default: fail(ErrorKind::kUnsupported, "unsupported-argument", cat("an operator on ", kind_name(value)));
  }
}

Value from_aten(const aten::Value& value) {
  switch (value.kind) {
    case AK::kNone: return {};
    case AK::kTensor: return Value(value.tensor);
    case AK::kInt: return Value::of_integer(value.integer);
    case AK::kBool: return Value::of_bool(value.integer);
    case AK::kFloat: return Value::of_float(value.number);
    case AK::kComplex: {
      Value v = Value::of_float(value.number);
      v.kind = VK::kComplex;
      v.imaginary = value.imaginary;
      return v;
    }
    case AK::kString: return Value::of_string(value.text);
    case AK::kDType: return Value::of_integer(element_type_number(value.dtype, value.complex_dtype));
    case AK::kList: {
      std::vector<Value> items;
      for (const aten::Value& item : value.items) items.push_back(from_aten(item));
      return Value::list(std::move(items));
    }
    case AK::kFailed:
    case AK::kOther: return Value::failed();
  }
  return {};
}

}  // namespace stridec::torchscript
