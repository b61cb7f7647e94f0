#include "compiler/extend/draw_rounding.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/base/numeric.h"

namespace stridec::extend {
namespace {

FloatFormat measured(DType dtype) {
  FloatFormat made{.bits = 1};
  const auto is_exact = [&](double value) { return round_float(dtype, value) == value; };
  while (made.bits < 53 && is_exact(1 + std::ldexp(1.0, -made.bits))) ++made.bits;
  while (made.most < 1023 && std::ldexp(1.0, made.most + 1) <= largest_finite(dtype)) ++made.most;
  while (made.least > -1074 && is_exact(std::ldexp(1.0, made.least - 1))) --made.least;
  return made;
}

void collect(const Term& term, bool& casts, std::vector<DType>& dtypes) {
  if (term.is_call("cast")) {
    casts = true;
    // A name that is not a type is bound to one that is drawn.
    if (term.args.size() > 1 && term.args[1].kind == Term::Kind::kName && !parse_dtype(term.args[1].name))
      dtypes.insert(dtypes.end(), {DType::kF64, DType::kF32, DType::kF16, DType::kBF16});
  }
  if (const auto dtype = parse_dtype(term.name); dtype && term.kind == Term::Kind::kName)
    dtypes.push_back(*dtype);
  for (const Term& arg : term.args) collect(arg, casts, dtypes);
  for (const NamedTerm& each : term.attributes) collect(each.value, casts, dtypes);
}

// A format that is narrower than `bits`, and one between the two through which a value may go.
struct Formats {
  FloatFormat narrow;
  std::optional<FloatFormat> wide;
};
std::optional<Formats> draw_formats(Draws& d, int bits, const std::vector<FloatFormat>& formats) {
  const auto between = [&](int low, int high) {
    std::vector<FloatFormat> out;
    for (const FloatFormat& each : formats)
      if (each.bits > low && each.bits < high) out.push_back(each);
    return out;
  };
  std::vector<FloatFormat> narrower = between(0, bits);
  if (narrower.empty()) return std::nullopt;
  // No format is between the widest one and the value: it is drawn less often.
  if (narrower.size() > 1 && d.chance(0.5))
    narrower.erase(std::ranges::max_element(narrower, {}, &FloatFormat::bits));
  Formats made{.narrow = d.any_of(narrower), .wide = {}};
  if (const auto wider = between(made.narrow.bits, bits); !wider.empty()) made.wide = d.any_of(wider);
  return made;
}

// 0: at the tie; 1, -1: on this side of it.
int64_t draw_side(Draws& d) { return d.chance(0.1) ? 0 : d.chance(0.5) ? 1 : -1; }

// An odd number of one bit more than the format has.
int64_t draw_tie(Draws& d, int bits) {
  return (int64_t{1} << bits) + 2 * d.below(int64_t{1} << (bits - 1)) + 1;
}

}  // namespace

const FloatFormat& format_of(DType dtype) {
  static const std::map<DType, FloatFormat> known = [] {
    std::map<DType, FloatFormat> all;
#define STRIDEC_DTYPE(id, ...) \
  if (is_float(DType::id)) all.emplace(DType::id, measured(DType::id));
#include "compiler/base/dtype.def"
#undef STRIDEC_DTYPE
    return all;
  }();
  return known.at(dtype);
}

std::vector<FloatFormat> formats_of(const Rule& rule) {
  bool casts = false;
  std::vector<DType> dtypes;
  for (const Side* side : {&rule.match, &rule.yield})
    for (const auto* list : {&side->results, &side->locals})
      for (const Definition& each : *list) collect(each.term, casts, dtypes);
  if (!casts) return {};
  for (const Variable& each : rule.variables)
    dtypes.insert(dtypes.end(), each.dtypes.begin(), each.dtypes.end());
  std::erase_if(dtypes, [](DType each) { return !is_float(each); });
  std::ranges::sort(dtypes);
  dtypes.erase(std::unique(dtypes.begin(), dtypes.end()), dtypes.end());
  std::vector<FloatFormat> formats;
  for (const DType each : dtypes) formats.push_back(format_of(each));
  return formats;
}

std::optional<int64_t> draw_integer_at_tie(Draws& d, DType dtype, const std::vector<FloatFormat>& formats) {
  const int width = info(dtype).bits - (is_signed(dtype) ? 1 : 0);
  const auto drawn = draw_formats(d, width, formats);
  if (!drawn) return std::nullopt;
  const auto& [narrow, wide] = *drawn;
  // Of so many bits that the wider format loses the last ones, or that the narrower one does.
  const int most = std::min(width, narrow.most + 1);
  const int least = wide && wide->bits + 2 <= most ? wide->bits + 2 : narrow.bits + 1;
  if (least > most) return std::nullopt;
  const int bits = least + static_cast<int>(d.below(most - least + 1));
  const uint64_t tie = static_cast<uint64_t>(draw_tie(d, narrow.bits)) << (bits - narrow.bits - 1);
  // Offsets below half a step of the wider format.
  const int steps = wide ? bits - wide->bits - 1 : 0;
  int64_t offset = draw_side(d);
  if (steps > 1 && d.chance(0.5)) offset *= 1 + d.below((int64_t{1} << steps) - 1);
  const auto value = static_cast<int64_t>(tie + static_cast<uint64_t>(offset));
  return wrap_integer(dtype, is_signed(dtype) && d.chance(0.3) ? -value : value);
}

std::optional<double> draw_float_at_tie(Draws& d, DType dtype, const std::vector<FloatFormat>& formats) {
  const int own = format_of(dtype).bits;
  const auto drawn = draw_formats(d, own, formats);
  if (!drawn) return std::nullopt;
  const auto& [narrow, wide] = *drawn;
  double tie = 0;
  if (d.chance(0.25)) {  // between two subnormal numbers
    tie = std::ldexp(static_cast<double>(2 * d.below(int64_t{1} << (narrow.bits - 1)) + 1), narrow.least - 1);
  } else {
    const int low = std::max(-10, narrow.least + narrow.bits), high = std::min(10, narrow.most);
    const int exponent = low + static_cast<int>(d.below(std::max(high - low, 0) + 1));
    tie = std::ldexp(static_cast<double>(draw_tie(d, narrow.bits)), exponent - narrow.bits);
  }
  // Offsets below half a step of the wider format, or of a step of its own.
  const int finest = own - 1;
  int unit = finest;
  if (wide && wide->bits + 1 < finest)
    unit = wide->bits + 1 + static_cast<int>(d.below(finest - wide->bits - 1));
  const double value = tie * (1 + static_cast<double>(draw_side(d)) * std::ldexp(1.0, -unit));
  return d.chance(0.5) ? value : -value;
}

}  // namespace stridec::extend
