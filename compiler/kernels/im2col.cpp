#include "compiler/kernels/im2col.h"

#include <algorithm>
#include <set>

#include "compiler/loop/analysis.h"

namespace stridec::kernels {
namespace {

using sym::Expr;
using Dims = std::vector<loop::Dim>;

// Field ranges of tensor maps, by number of spatial dims.
struct Limits {
  int corner, offset;
};
constexpr Limits kLimits[] = {{32767, 65535}, {127, 255}, {15, 31}};
constexpr int kMostStep = 8;
// Search range for the distance from an image's last index to the start of its last window, where a
// subtraction does not give it.
constexpr int kMostUpper = 64;

const loop::Dim* only_dim(Expr e, const Dims& dims) {
  const loop::Dim* found = nullptr;
  for (const loop::Dim& dim : dims) {
    if (!sym::depends_on(e, dim.var)) continue;
    if (found) return nullptr;
    found = &dim;
  }
  return found;
}

std::optional<int> small(Expr e) {
  const auto value = sym::as_const(e);
  return value && *value >= -(1 << 15) && *value < 1 << 15 ? std::optional(static_cast<int>(*value))
                                                           : std::nullopt;
}

// `count` windows start at lower, lower + step, .... Returns how far beyond the image's last index a window
// may start so that the engine finds exactly that many.
std::optional<int> upper_of(Expr extent, Expr count, int step, int lower, int most, const sym::Facts& facts) {
  const Expr least = sym::simplify((count - 1) * step + lower - (extent - 1), facts);
  if (const auto known = small(least)) return known;
  for (int upper = -most; upper <= most; ++upper)
    if (facts.holds(sym::eq(sym::floordiv(extent - 1 + upper - lower, step) + 1, count))) return upper;
  return std::nullopt;
}

}  // namespace

std::optional<Im2col> match_im2col(const loop::Program& program, const loop::Access& access,
                                   const Dims& lines, const Dims& depth, const sym::Facts& facts) {
  if (lines.size() < 2 || lines.size() > 4 || depth.empty()) return std::nullopt;
  const Limits limits = kLimits[lines.size() - 2];
  const loop::Buffer& buffer = program[access.buffer];
  const Expr channel = depth.back().var;
  const Dims taps(depth.begin(), depth.end() - 1);
  const int bytes = byte_size(buffer.dtype);
  if (facts.known_divisor(depth.back().extent) % (kIm2colBytes / bytes)) return std::nullopt;
  Im2col out{.places = {}, .image = access.index.size(), .channel = access.index.size(), .first_channel = 0};
  std::set<Expr, sym::ExprLess> used;  // dims that have been assigned
  std::vector<Expr> inside;            // conditions that the engine implies
  std::vector<Expr> mask = loop::conjuncts(access.mask);
  for (Expr& part : mask) part = sym::simplify(part, facts);
  for (size_t d = 0; d < access.index.size(); ++d) {
    const Expr index = access.index[d];
    if (!depends_on_any(index, lines)) {
      if (index.is_const(0)) continue;
      const auto linear = sym::linear_in(index, channel);
      if (!linear || !linear->coefficient.is_const(1) || depends_on_any(linear->rest, depth) ||
          !buffer.strides[d].is_const(1) || !used.insert(channel).second)
        return std::nullopt;
      if (!facts.holds(sym::le(linear->rest + depth.back().extent, buffer.shape[d]))) return std::nullopt;
      out.channel = d;
      out.first_channel = linear->rest;
      continue;
    }
    if (facts.known_divisor(buffer.strides[d]) % (16 / bytes) || facts.bounds(buffer.strides[d]).lo < 1)
      return std::nullopt;
    const loop::Dim* row = only_dim(index, lines);
    const auto by_row = row ? sym::linear_in(index, row->var) : std::nullopt;
    if (!by_row || !used.insert(row->var).second) return std::nullopt;
    if (row->var == lines[0].var) {
      if (!by_row->coefficient.is_const(1) || !by_row->rest.is_const(0)) return std::nullopt;
      out.image = d;
      continue;
    }
    Im2col::Place place{.dim = d, .row = row->var, .step = 1, .lower = 0, .upper = 0};
    Expr rest = by_row->rest;
    if (depends_on_any(rest, depth)) {
      const loop::Dim* tap = only_dim(rest, taps);
      const auto by_tap = tap ? sym::linear_in(rest, tap->var) : std::nullopt;
      const auto dilation = by_tap ? small(by_tap->coefficient) : std::nullopt;
      const auto count = tap ? small(tap->extent) : std::nullopt;
      const int last = count ? *count - 1 : 0;
      if (!dilation || !count || *count < 1 || *dilation == 0 || std::abs(*dilation) * last > limits.offset ||
          !used.insert(tap->var).second)
        return std::nullopt;
      place.offset = *dilation > 0 ? *dilation * tap->var : -*dilation * (last - tap->var);
      rest = *dilation > 0 ? by_tap->rest : by_tap->rest + *dilation * last;
    }
    const auto step = small(by_row->coefficient), lower = small(rest);
    if (!step || *step < 1 || *step > kMostStep || !lower) return std::nullopt;
    const auto upper =
        upper_of(buffer.shape[d], row->extent, *step, *lower, std::min(limits.corner, kMostUpper), facts);
    if (!upper || std::abs(*lower) > limits.corner || std::abs(*upper) > limits.corner) return std::nullopt;
    place.step = *step, place.lower = *lower, place.upper = *upper;
    out.places.push_back(place);
    for (const Expr condition : {sym::ge(index, 0), sym::lt(index, buffer.shape[d])}) {
      inside.push_back(sym::simplify(condition, facts));
      // A merged dim runs through several dims of the buffer. The engine would stop at the end of the first.
      if (!facts.holds(condition) && std::ranges::find(mask, inside.back()) == mask.end())
        return std::nullopt;
    }
  }
  if (used.size() != lines.size() + depth.size()) return std::nullopt;
  // A load within its mask is within its buffer; the engine cannot implement further conditions of the mask.
  for (const Expr part : mask)
    if (std::ranges::find(inside, part) == inside.end()) return std::nullopt;
  const auto order = [&](const Im2col::Place& place) {
    return std::find_if(lines.begin(), lines.end(),
                        [&](const loop::Dim& dim) { return dim.var == place.row; });
  };
  std::sort(out.places.begin(), out.places.end(),
            [&](const auto& a, const auto& b) { return order(a) > order(b); });
  return out;
}

}  // namespace stridec::kernels
