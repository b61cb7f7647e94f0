#include "compiler/extend/draw_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "compiler/base/number.h"
#include "compiler/base/numeric.h"

namespace stridec::extend {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_exact(const Check& check) {
  return check.kind == Check::Kind::kExact || check.kind == Check::Kind::kUlp;
}

// How many elements of a tensor are unusual, and of which sign these are: 0 for both. Reductions differ
// only where all elements are, or all of one sign. The scale of extreme values is one for a tensor.
struct Mix {
  enum class Scale { kPlain, kTiny, kLarge, kNearLargest };
  double share = 1;
  int sign = 0;
  Scale scale = Scale::kPlain;
};

Mix draw_mix(Draws& d, Values values) {
  using Scale = Mix::Scale;
  Mix mix{.share = d.any_of<double>({0.3, 0.6, 1, 1}), .sign = d.any_of<int>({0, 0, 0, 1, -1})};
  if (values == Values::kNearLargest) mix.scale = d.chance(0.75) ? Scale::kNearLargest : Scale::kPlain;
  if (values == Values::kExtreme)
    mix.scale = d.any_of<Scale>({Scale::kLarge, Scale::kLarge, Scale::kTiny, Scale::kTiny, Scale::kPlain});
  return mix;
}

double with_sign(Draws& d, double magnitude, const Mix& mix) {
  return mix.sign > 0 || (mix.sign == 0 && d.chance(0.5)) ? magnitude : -magnitude;
}

double small_number(Draws& d) {
  if (d.chance(0.1)) return d.chance(0.5) ? 0.0 : -0.0;
  return d.chance(0.3) ? static_cast<double>(d.below(9) - 4) : d.normal();
}

// Numbers at which functions and comparisons change what they do.
double draw_edge(Draws& d, DType dtype, bool finite) {
  const FloatFormat& format = format_of(dtype);
  const double most = largest_finite(dtype), least = std::ldexp(1.0, format.least);
  const double normal = std::ldexp(1.0, format.least + format.bits - 1);
  const std::vector<double> edges = {0,    -0.0,  0,    -0.0,  1,     -1,     0.5,    -0.5,       2,
                                     most, -most, most, -most, least, -least, normal, 0.75 * most};
  const std::vector<double> others = {INFINITY, -INFINITY, INFINITY, -INFINITY, kNan};
  return !finite && d.chance(0.3) ? d.any_of(others) : d.any_of(edges);
}

// Near a number from which on exp() of this type, or of a wider one, is infinite or zero.
double draw_threshold(Draws& d, DType dtype, const Mix& mix) {
  const DType of = is_float(dtype) && d.chance(0.7) ? dtype : DType::kF32;
  const double high = std::log(largest_finite(of)), low = -format_of(of).least * std::log(2.0);
  const double number = d.chance(0.7) ? high : low;
  return with_sign(d, number * d.any_of<double>({0.5, 1, 1, 1, 2}) + d.normal(), mix);
}

// A multiple of 0.5, or a float next to it: the ties of rounding to integers.
double draw_near_half(Draws& d, DType dtype) {
  const int bits = format_of(dtype).bits;
  const double number = static_cast<double>(d.below(65) - 32) * 0.5;
  return number * (1 + static_cast<double>(d.below(3) - 1) * std::ldexp(1.0, 1 - bits));
}

// Positive. Tiny and large numbers are so far from 1 that their sum with 1 is one of the two, except in f16.
double draw_extreme(Draws& d, DType dtype, const Mix& mix) {
  const double most = largest_finite(dtype);
  const FloatFormat& format = format_of(dtype);
  switch (mix.scale) {
    case Mix::Scale::kPlain: return std::abs(d.normal()) + 0.25;
    case Mix::Scale::kTiny: return std::exp2(d.between(format.least, 0.5 * format.least));
    case Mix::Scale::kLarge: return std::exp2(d.between(0.25, 1) * std::log2(most));
    case Mix::Scale::kNearLargest: break;
  }
  return most * d.between(0.5, 1);
}

double draw_in_range(Draws& d, const Check& check, Values values, const Mix& mix) {
  const auto [low, high] = *check.range;
  const double chance = values == Values::kLarge ? 0.5 * mix.share : 0.1;
  if (!d.chance(chance)) return d.between(low, high);
  std::vector<double> edges = {0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0};
  std::erase_if(edges, [&](double edge) { return edge < low || edge > high; });
  for (int i = 0; i < 3; ++i) edges.push_back(low), edges.push_back(high);
  return d.any_of(edges);
}

double draw_float(Draws& d, DType dtype, const Check& check, Values values, const Mix& mix) {
  if (check.range) return draw_in_range(d, check, values, mix);
  const double most = largest_finite(dtype);
  switch (values) {
    case Values::kPlain: break;
    case Values::kLarge:
      if (!d.chance(mix.share)) break;
      if (is_exact(check)) {
        if (d.chance(0.3)) return draw_near_half(d, dtype);
        return with_sign(
            d, std::abs(std::ldexp(d.normal(), static_cast<int>(d.between(-1, 1) * std::log2(most)))), mix);
      } else {
        // Values stay where products of two do not overflow.
        const double limit = std::min(1000.0, std::sqrt(most) / 8);
        const double large =
            d.chance(0.4) ? draw_threshold(d, dtype, mix) : with_sign(d, d.between(0, limit), mix);
        return std::clamp(large, -limit, limit);
      }
    case Values::kNan:
      if (d.chance(0.3)) return kNan;
      break;
    case Values::kPositiveInfinity:
      // Positive, so that sums and products of infinities are infinite however they are associated.
      return d.chance(0.15) ? INFINITY : std::abs(small_number(d)) + 0.25;
    case Values::kSpecial:
      if (d.chance(mix.share)) return draw_edge(d, dtype, check.finite);
      break;
    case Values::kNearLargest:
    case Values::kExtreme: return draw_extreme(d, dtype, mix);
    case Values::kSquarable:
      if (d.chance(mix.share)) return with_sign(d, std::exp2(d.between(0, 0.4) * std::log2(most)), mix);
      break;
  }
  return small_number(d);
}

int64_t draw_integer(Draws& d, DType dtype, Values values, const Mix& mix) {
  if ((values != Values::kSpecial && values != Values::kLarge) || !d.chance(mix.share))
    return wrap_integer(dtype, is_signed(dtype) ? d.below(9) - 4 : d.below(5));
  const IntegerRange range = integer_range(dtype);
  const std::vector<int64_t> edges = {range.lo,     static_cast<int64_t>(range.hi),     0, 1,
                                      range.lo + 1, static_cast<int64_t>(range.hi) - 1, -1};
  if (d.chance(0.5)) return wrap_integer(dtype, d.any_of(edges));
  if (d.chance(0.3)) {  // next to a power of two
    const auto power = static_cast<int64_t>(uint64_t{1} << d.below(info(dtype).bits));
    const auto number = static_cast<uint64_t>(power) + static_cast<uint64_t>(d.below(3) - 1);
    return wrap_integer(dtype, static_cast<int64_t>(d.chance(0.5) ? number : -number));
  }
  return wrap_integer(dtype, d.below(int64_t{1} << 62) - (int64_t{1} << 61));
}

constexpr double kShareNear = 0.1;  // of elements that are near a number of the rule

// At or next to one of the numbers, where the kind of values has any sign and size.
std::optional<double> draw_float_near(Draws& d, DType dtype, const Check& check, Values values,
                                      const std::vector<double>& numbers) {
  const bool any = values == Values::kPlain || (is_exact(check) && values != Values::kNan);
  if (!any || numbers.empty() || !d.chance(kShareNear)) return std::nullopt;
  const double step = static_cast<double>(d.below(3) - 1) * std::ldexp(1.0, 1 - format_of(dtype).bits);
  const double number = (d.chance(0.8) ? 1 : -1) * d.any_of(numbers) * (1 + step);
  const bool fits = std::abs(number) <= largest_finite(dtype) &&
                    (!check.range || (number >= check.range->first && number <= check.range->second));
  return fits ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> draw_integer_near(Draws& d, DType dtype, const std::vector<double>& numbers) {
  if (numbers.empty() || !d.chance(kShareNear)) return std::nullopt;
  const double number =
      (d.chance(0.8) ? 1 : -1) * std::trunc(d.any_of(numbers)) + static_cast<double>(d.below(3) - 1);
  if (std::abs(number) >= 0x1p62) return std::nullopt;
  return wrap_integer(dtype, static_cast<int64_t>(number));
}

}  // namespace

std::vector<Values> kinds_of_values(const Check& check) {
  if (check.range) return {Values::kPlain, Values::kLarge};
  if (is_exact(check)) {
    if (check.finite) return {Values::kPlain, Values::kSpecial, Values::kLarge};
    return {Values::kPlain, Values::kSpecial, Values::kLarge, Values::kNan};
  }
  if (check.finite) return {Values::kPlain, Values::kLarge, Values::kNearLargest, Values::kExtreme};
  return {Values::kPlain,       Values::kLarge,  Values::kNan, Values::kPositiveInfinity,
          Values::kNearLargest, Values::kExtreme};
}

std::vector<Values> unusual_inputs(const Check& check) {
  if (check.range) return {Values::kLarge};
  if (check.finite) return {Values::kLarge, Values::kSquarable};
  return {Values::kLarge, Values::kNan, Values::kPositiveInfinity, Values::kSquarable};
}

bool is_extreme(Values values) { return values == Values::kNearLargest || values == Values::kExtreme; }

loop::HostTensor draw_tensor(Draws& d, const graph::Type& type, const Check& check, Values values,
                             bool constant, const Landmarks& near) {
  std::vector<int64_t> shape;
  for (const sym::Expr dim : type.shape) shape.push_back(dim.value());
  loop::HostTensor tensor = loop::make_tensor(type.dtype, shape);
  const size_t width = static_cast<size_t>(byte_size(type.dtype));
  // Conditions on constants are often met by special numbers alone, and by one number in all elements.
  static const std::vector<double> kConstants = {0, 0, 0, 0, -0.0, 1, 1, 2, 0.5, 4, -1, 0.25, 3, -2, 8};
  const bool one = constant && d.chance(0.6);
  const double number = d.any_of(kConstants);
  const Mix mix = draw_mix(d, values);
  const bool ties = is_exact(check) && !check.range && !near.formats.empty() && !one &&
                    (values == Values::kLarge || values == Values::kSpecial);
  for (int64_t i = 0; i < loop::element_count(tensor); ++i) {
    uint8_t* at = tensor.bytes.data() + static_cast<size_t>(i) * width;
    const bool tie = ties && d.chance(0.7);
    if (is_bool(type.dtype)) {
      write_integer(type.dtype, d.below(2), at);
    } else if (is_float(type.dtype)) {
      const auto drawn = tie ? draw_float_at_tie(d, type.dtype, near.formats)
                             : draw_float_near(d, type.dtype, check, values, near.numbers);
      const double value = drawn                       ? *drawn
                           : one                       ? number
                           : constant && d.chance(0.5) ? d.any_of(kConstants)
                                                       : draw_float(d, type.dtype, check, values, mix);
      write_float(type.dtype, value, at);
    } else {
      const auto drawn = tie ? draw_integer_at_tie(d, type.dtype, near.formats)
                             : draw_integer_near(d, type.dtype, near.numbers);
      write_integer(type.dtype,
                    drawn ? *drawn
                    : one ? static_cast<int64_t>(number)
                          : draw_integer(d, type.dtype, values, mix),
                    at);
    }
  }
  return tensor;
}

namespace {

bool names(const Term& term, const std::string& name) {
  return (term.kind == Term::Kind::kName && term.name == name) ||
         std::ranges::any_of(term.args, [&](const Term& arg) { return names(arg, name); });
}

bool bounds(const Term& condition, const std::string& name) {
  const bool about =
      condition.is_call("is_power_of_two") || condition.is_call("normal") || condition.is_call("finite");
  if (about) return names(condition, name);
  return std::ranges::any_of(condition.args, [&](const Term& arg) { return bounds(arg, name); });
}

}  // namespace

bool bounds_contents(const Rule& rule, const std::string& constant) {
  return std::ranges::any_of(rule.where, [&](const Term& each) { return bounds(each, constant); });
}

std::vector<double> limits_of(DType dtype) {
  if (is_bool(dtype)) return {};
  if (!is_float(dtype))
    return {1, std::ldexp(1.0, std::min(info(dtype).bits - (is_signed(dtype) ? 2 : 1), 62))};
  const FloatFormat& format = format_of(dtype);
  return {std::ldexp(1.0, format.least), std::ldexp(1.0, format.most),
          std::ldexp(1.0, format.least + format.bits - 1), std::ldexp(1.0, format.least + format.bits - 2)};
}

loop::HostTensor negated(loop::HostTensor tensor) {
  for (int64_t i = 0; i < loop::element_count(tensor) && is_float(tensor.dtype); ++i)
    loop::set_number(tensor, i, -loop::get_number(tensor, i));
  return tensor;
}

loop::HostTensor filled(loop::HostTensor tensor, double number) {
  for (int64_t i = 0; i < loop::element_count(tensor); ++i) loop::set_number(tensor, i, number);
  return tensor;
}

}  // namespace stridec::extend
