#include "compiler/frontend/aten/complex_value.h"

#include <algorithm>

#include "compiler/frontend/aten/context.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {

using namespace ops;
using Kind = Value::Kind;

bool is_complex(const Value& value) {
  return value.kind == Kind::kComplex || (value.is_tensor() && value.tensor.complex);
}

bool mentions_complex(const Value& value) {
  return is_complex(value) || value.complex_dtype ||
         std::ranges::any_of(value.items, [](const Value& item) { return mentions_complex(item); });
}
bool mentions_complex(std::span<const Value> values) {
  return std::ranges::any_of(values, [](const Value& value) { return mentions_complex(value); });
}

Tensor joined(Term real, Term imaginary) {
  const Shape shape = broadcast(real.builder(), {real.shape(), imaginary.shape()}, "complex");
  const DType dtype =
      real.dtype() == DType::kF64 || imaginary.dtype() == DType::kF64 ? DType::kF64 : real.dtype();
  const DType to = is_float(dtype) ? dtype : DType::kF32;
  const int64_t rank = std::ssize(shape);
  const auto part = [&](Term t) { return unsqueeze(expand(cast(t, to, false), shape), {rank}); };
  Tensor out = fresh(concat({part(real), part(imaginary)}, rank));
  out.complex = true;
  return out;
}

Complex pair_of(Builder& b, const Value& v) {
  if (v.kind == Kind::kComplex)
    return {number(b, DType::kF32, v.number), number(b, DType::kF32, v.imaginary)};
  const Term t = as_term(b, v);
  if (!v.is_tensor() || !v.tensor.complex) return real(is_float(t.dtype()) ? t : cast(t, DType::kF32, false));
  const int64_t last = t.rank() - 1;
  return {squeeze(slice(t, last, 0, 1), {last}), squeeze(slice(t, last, 1, 1), {last})};
}
Complex pair_of(Builder& b, const Value& v, DType dtype) {
  if (v.kind == Kind::kComplex) return {number(b, dtype, v.number), number(b, dtype, v.imaginary)};
  if (v.is_number()) return real(scalar_of(b, v, dtype));
  const Complex z = pair_of(b, v);
  return {cast(z.re, dtype, false), cast(z.im, dtype, false)};
}
Value part_of(Builder& b, const Value& v, bool imaginary) {
  Value out = v;
  for (Value& item : out.items) item = part_of(b, item, imaginary);
  if (v.kind == Kind::kComplex) return Value::number_of(imaginary ? v.imaginary : v.number);
  if (v.is_number()) return imaginary ? Value::number_of(0) : v;
  if (!v.is_tensor() || (!v.tensor.complex && !imaginary)) return out;
  const Complex z = pair_of(b, v);
  Tensor part = fresh(imaginary ? z.im : z.re);
  part.wrapped = v.tensor.wrapped;
  return part;
}

Value joined_value(const Complex& z) { return joined(z.re, z.im); }
Value joined_value(Builder& b, const Value& re, const Value& im) {
  if (re.kind == Kind::kList && re.items.size() == im.items.size()) {
    std::vector<Value> items;
    for (size_t i = 0; i < re.items.size(); ++i) items.push_back(joined_value(b, re.items[i], im.items[i]));
    return Value::list(std::move(items));
  }
  if (!re.is_tensor() || !im.is_tensor()) return re;
  return joined(read(b, re.tensor), read(b, im.tensor));
}

}  // namespace stridec::aten
