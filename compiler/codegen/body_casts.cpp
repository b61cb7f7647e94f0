// Body: conversions between values and their storage types, and casts between dtypes.
#include <cmath>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"

namespace stridec::codegen {
namespace {

// The dtype that values of `dtype` are computed in.
DType computed(DType dtype) { return is_storage_float(dtype) ? DType::kF32 : dtype; }

}  // namespace

// ---- storage

std::string Body::rounded(const std::string& text, DType dtype, int width) {
  if (!is_storage_float(dtype) || wide_floats) return text;
  text_.use(cat("to.", name(dtype)), width);
  text_.use(cat("from.", name(dtype)), width);
  return cat("sd_from_", name(dtype), "(sd_to_", name(dtype), "(", text, "))");
}

std::string Body::to_storage(const std::string& text, DType dtype, int width) {
  if (dtype == DType::kBF16 && !wide_floats && !text_.is_cuda()) {
    text_.use("halves", width);
    return cat("sd_halves(", text, ")");
  }
  if (is_storage_float(dtype)) {
    text_.use(cat("to.", name(dtype)), width);
    return cat("sd_to_", name(dtype), "(", text, ")");
  }
  if (dtype == DType::kBool)
    return width == 1 ? cat("(u8)(", text, ")")
                      : cat("__builtin_convertvector(", text, ", ", text_.storage_type(dtype, width), ")");
  return text;
}

void Body::set_stored(loop::ValueId id, const std::string& vector, DType dtype) {
  define(id, from_storage(vector, dtype, width_), width_);
}

std::string Body::stored_fill(const loop::Load& load) {
  return to_storage(literal(load.fill), load.fill.dtype, 1);
}

std::string Body::to_storage(const CValue& value, DType dtype) {
  return !value.stored.empty() && value.dtype == dtype ? value.stored : to_storage(value.text, dtype, 1);
}

std::string Body::from_storage(const std::string& text, DType dtype, int width) {
  if (is_storage_float(dtype)) {
    text_.use(cat("from.", name(dtype)), width);
    return cat("sd_from_", name(dtype), "(", text, ")");
  }
  if (dtype == DType::kBool) return width == 1 ? cat("(", text, " != 0)") : convert(text, dtype, width);
  return text;
}

// ---- casts

std::string Body::convert(const std::string& text, DType to, int width) {
  const std::string type = text_.value_type(to, width);
  return width == 1 ? cat("(", type, ")(", text, ")")
                    : cat("__builtin_convertvector(", text, ", ", type, ")");
}

std::string Body::splat(const std::string& text, DType dtype, int width) {
  return cat("(", text_.value_type(dtype, width), ")(", text, ")");
}

std::string Body::narrowed(const std::string& text, DType to, int width) {
  if (!is_narrow(to)) return text;
  const int bits = info(to).bits;
  const std::string type = text_.value_type(to, width);
  return is_signed(to) ? cat("((", type, ")((", type, ")((", text, ") << ", 8 - bits, ") >> ", 8 - bits, "))")
                       : cat("((", type, ")((", text, ") & (", type, ")", (1 << bits) - 1, "))");
}

std::string Body::cast_text(const std::string& text, DType from, DType to, int width, bool saturate) {
  if (from == to && !(saturate && is_storage_float(to))) return text;
  if (is_bool(from)) {
    // 0 and 1. Convert through i32, because bool vectors are sign-extended when converted to floats.
    if (is_float(to)) return cast_text(convert(text, DType::kI32, width), DType::kI32, to, width, saturate);
    return convert(text, to, width);
  }
  if (is_bool(to)) {
    const std::string type = text_.value_type(from, width);
    return width == 1 ? cat("((", text, ") != 0)")
                      : convert(cat("(", text, ") != (", type, ")0"), DType::kBool, width);
  }
  if (is_float(from) && is_float(to)) return float_of_float(text, from, to, width, saturate);
  if (is_float(from))
    return saturate ? nearest_integer_of_float(text, computed(from), to, width)
                    : integer_of_float(text, computed(from), to, width);
  if (is_float(to)) {
    if (to == DType::kF32 || to == DType::kF64) return convert(text, to, width);
    const DType between = info(from).bits <= 16 ? DType::kF32 : DType::kF64;
    return cast_text(convert(text, between, width), between, to, width, saturate);
  }
  return integer_of_integer(text, from, to, width, saturate);
}

std::string Body::float_of_float(const std::string& text, DType from, DType to, int width, bool saturate) {
  const DType f = computed(from), t = computed(to);
  std::string x = text;
  if (f == DType::kF64 && is_storage_float(to)) {
    text_.use("odd", width);
    x = cat("sd_odd(", x, ")");
  } else if (f != t) {
    x = convert(x, t, width);
  }
  if (!saturate || !is_storage_float(to) || wide_floats) return rounded(x, to, width);
  text_.use(cat("to_sat.", name(to)), width);
  text_.use(cat("from.", name(to)), width);
  return cat("sd_from_", name(to), "(sd_to_sat_", name(to), "(", x, "))");
}

std::string Body::nearest_integer_of_float(const std::string& text, DType from, DType to, int width) {
  const IntegerRange range = integer_range(to);
  const bool single = from == DType::kF32;
  const double lo = static_cast<double>(range.lo), hi = static_cast<double>(range.hi);
  const double top = single ? static_cast<double>(static_cast<float>(hi)) : hi;
  const bool exact = top < 0x1p63 && static_cast<uint64_t>(top) == range.hi;
  if (exact) {
    const DType between = info(to).bits > 31 ? DType::kI64 : DType::kI32;
    return narrowed(convert(convert(clamped(text, from, to, width), between, width), to, width), to, width);
  }
  const std::string name = text_.fresh("v");
  const std::string type = text_.value_type(from, width);
  text_.line(cat("const ", type, " ", name, " = ", text, ";"));
  auto pick = [&](const std::string& c, const std::string& a, const std::string& b) {
    return cat("((", c, ") ? ", a, " : ", b, ")");
  };
  const std::string low = splat(float_literal(lo, single), from, width),
                    high = splat(float_literal(top, single), from, width), zero = splat("0", from, width);
  std::string x = pick(cat(name, " > ", low), name, low);  // NaN becomes low
  x = pick(cat(name, " == ", name), x, zero);
  // `top` itself is out of range by one.
  const DType wide = to == DType::kU64 ? DType::kU64 : DType::kI64;
  const std::string inside = text_.fresh("v"), cut = text_.fresh("v");
  text_.line(cat("const ", type, " ", inside, " = ", pick(cat(name, " < ", high), x, zero), ";"));
  text_.line(cat("const ", text_.value_type(to, width), " ", cut, " = ",
                 convert(convert(inside, wide, width), to, width), ";"));
  const std::string most = splat(cat(range.hi, to == DType::kU64 ? "ul" : "l"), to, width);
  if (width == 1) return pick(cat(name, " >= ", high), most, cut);
  text_.use(cat("select.", text_.value_type(to)), width);
  return cat("sd_select(", convert(cat(name, " >= ", high), DType::kBool, width), ", ", most, ", ", cut, ")");
}

// Converts to a wider integer first: a value that fits in 32 (64) bits then wraps to fewer.
std::string Body::integer_of_float(const std::string& text, DType from, DType to, int width) {
  if (to == DType::kU64) {
    const std::string name = text_.fresh("v"), big = text_.fresh("v");
    const std::string type = text_.value_type(from, width), u64 = text_.value_type(DType::kU64, width);
    const std::string limit = splat(float_literal(0x1p63, from == DType::kF32), from, width);
    text_.line(cat("const ", type, " ", name, " = ", text, ";"));
    text_.line(cat("const ", u64, " ", big, " = (", u64, ")",
                   convert(cat("(", name, " >= ", limit, " ? ", name, " - ", limit, " : ", name, ")"),
                           DType::kI64, width),
                   ";"));
    if (width == 1) return cat("(", name, " >= ", limit, " ? ", big, " ^ (1ul << 63) : ", big, ")");
    text_.use("select.u64", width);
    return cat("sd_select(", convert(cat(name, " >= ", limit), DType::kBool, width), ", ", big,
               " ^ (1ul << 63), ", big, ")");
  }
  const bool wide = info(to).bits > 32 || to == DType::kU32;
  const std::string x = convert(text, wide ? DType::kI64 : DType::kI32, width);
  return narrowed(to == DType::kI64 || to == DType::kI32 ? x : convert(x, to, width), to, width);
}

std::string Body::integer_of_integer(const std::string& text, DType from, DType to, int width,
                                     bool saturate) {
  const bool same = text_.value_type(from) == text_.value_type(to);
  if (!saturate) return narrowed(same ? text : convert(text, to, width), to, width);
  const IntegerRange source = integer_range(from), target = integer_range(to);
  const std::string type = text_.value_type(from, width), name = text_.fresh("v");
  text_.line(cat("const ", type, " ", name, " = ", text, ";"));
  std::string x = name;
  if (source.hi > target.hi) {
    const std::string most = cat("(", type, ")(", target.hi, from == DType::kU64 ? "ul)" : "l)");
    x = cat("(", name, " > ", most, " ? ", most, " : ", x, ")");
  }
  if (source.lo < target.lo) {
    const std::string least = target.lo == INT64_MIN ? cat("(", type, ")(-9223372036854775807l - 1)")
                                                     : cat("(", type, ")(", target.lo, "l)");
    x = cat("(", name, " < ", least, " ? ", least, " : ", x, ")");
  }
  return same ? x : convert(x, to, width);
}

// Clamps a float so that it plus `shift` is in the range of an integer dtype whose bounds are exact floats;
// NaN becomes 0 (after the shift). Each select is one instruction. With `above` false there is no upper
// bound.
std::string Body::clamped(const std::string& text, DType from, DType to, int width, double shift,
                          bool above) {
  const IntegerRange range = integer_range(to);
  const bool single = from == DType::kF32;
  const std::string type = text_.value_type(from, width);
  std::string name;
  auto define = [&](const std::string& x) {
    name = text_.fresh("v");
    text_.line(cat("const ", type, " ", name, " = ", x, ";"));
  };
  auto constant = [&](double x) { return splat(float_literal(x, single), from, width); };
  const std::string low = constant(static_cast<double>(range.lo) - shift),
                    high = constant(static_cast<double>(range.hi) - shift);
  define(text);
  if (range.lo != 0) define(cat("(", name, " == ", name, ") ? ", name, " : ", constant(-shift)));
  define(cat("(", name, " > ", low, ") ? ", name, " : ", low));
  if (above) define(cat("(", name, " < ", high, ") ? ", name, " : ", high));
  return name;
}

// f32 to the nearest i32, ties to even, in one instruction; "" if there is none for this width.
std::string Body::nearest_text(const std::string& text, int width) const {
  if (text_.is_cuda()) return "";
  const std::string type = text_.value_type(DType::kI32, width);
  if (text_.target().avx512 && width == 16)
    return cat("(", type, ")__builtin_ia32_cvtps2dq512_mask(", text, ", (", type,
               ")0, (unsigned short)-1, 4)");
  if (text_.target().avx2 && width == 8) return cat("(", type, ")__builtin_ia32_cvtps2dq256(", text, ")");
  return "";
}

}  // namespace stridec::codegen
