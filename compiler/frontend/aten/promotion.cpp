#include "compiler/frontend/aten/promotion.h"

namespace stridec::aten {
namespace {

int category(DType t) { return is_bool(t) ? 0 : is_integer(t) ? 1 : 2; }

// Result types of the three priorities.
struct Seen {
  std::optional<DType> dims, zero, number;
};

void merge(std::optional<DType>& to, DType t) { to = to ? promote(*to, t) : t; }

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher || !lower) return higher ? higher : lower;
  if (category(*higher) == 2) return higher;
  if (category(*higher) == 0 || category(*lower) == 2) return promote(*higher, *lower);
  return higher;
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  const int ca = category(a), cb = category(b);
  if (ca != cb) return ca > cb ? a : b;
  if (ca == 2) {
    // Two storage formats that do not contain each other meet in f32.
    if (is_storage_float(a) && is_storage_float(b)) return DType::kF32;
    return byte_size(a) > byte_size(b) ? a : b;
  }
  if (is_signed(a) == is_signed(b)) return byte_size(a) > byte_size(b) ? a : b;
  const DType plus = is_signed(a) ? a : b, minus = is_signed(a) ? b : a;  // minus is unsigned
  if (byte_size(plus) > byte_size(minus)) return plus;
  switch (byte_size(minus)) {
    case 1: return DType::kI16;
    case 2: return DType::kI32;
    default: return DType::kI64;
  }
}

DType result_type(Builder& b, std::span<const Value> values) {
  Seen seen;
  for (const Value& v : values) {
    if (v.is_tensor()) {
      const Term t = read(b, v.tensor);
      const bool weak = v.tensor.wrapped;
      merge(weak                            ? seen.number
            : shape_of(b, v.tensor).empty() ? seen.zero
                                            : seen.dims,
            weak && is_float(t.dtype()) ? DType::kF32 : t.dtype());
    } else if (v.is_number()) {
      merge(seen.number, dtype_of_number(v));
    }
  }
  return combine(seen.dims, combine(seen.zero, seen.number)).value_or(DType::kF32);
}

DType float_type(DType dtype) { return is_float(dtype) ? dtype : DType::kF32; }

Operands promoted(const Context& c, std::string_view x, std::string_view y) {
  for (std::string_view name : {x, y})
    if (c.arg(name).is_tensor() && c.arg(name).tensor.complex)
      c.unsupported(c.schema.full_name() + " of complex numbers");
  const DType to = result_type(c.b, {c.arg(x), c.arg(y)});
  return {ops::cast(as_term(c.b, c.arg(x)), to, false), ops::cast(as_term(c.b, c.arg(y)), to, false)};
}

Operands promoted_float(const Context& c, std::string_view x, std::string_view y) {
  const Operands o = promoted(c, x, y);
  const DType to = float_type(o.x.dtype());
  return {ops::cast(o.x, to, false), ops::cast(o.y, to, false)};
}

}  // namespace stridec::aten
