#include "compiler/extend/c_index.h"

#include <algorithm>
#include <utility>

#include "compiler/extend/evaluate.h"
#include "compiler/ops/helpers.h"
#include "compiler/sym/guard.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::OpKind;

bool is_small(int64_t scale) { return scale > -(1 << 20) && scale < 1 << 20; }

// The sign that compares the operands in the other order.
std::string mirrored(const std::string& sign) {
  if (sign == "<") return ">";
  if (sign == "<=") return ">=";
  if (sign == ">") return "<";
  if (sign == ">=") return "<=";
  return sign;
}

struct Ends {
  sym::Expr low, high;
};
Ends ends_of(const CRanges& ranges, const Affine& index) {
  const sym::Expr last = index.offset + (ranges.extent_of(index.index) - 1) * index.scale;
  return index.scale > 0 ? Ends{index.offset, last} : Ends{last, index.offset};
}

bool is_inside(const Builder& b, const CRanges& ranges, const Affine& index, sym::Expr dim) {
  const Ends ends = ends_of(ranges, index);
  return b.holds(sym::ge(ends.low, 0)) && b.holds(sym::lt(ends.high, dim));
}

IndexComparison compare_index(const Builder& b, const CRanges& ranges, std::string sign, const Affine& index,
                              sym::Expr size) {
  // As one of <, <= and ==, or its opposite.
  const bool opposite = sign == ">" || sign == ">=" || sign == "!=";
  if (opposite) sign = sign == ">" ? "<=" : sign == ">=" ? "<" : "==";
  const auto [low, high] = ends_of(ranges, index);
  IndexComparison made{.index = index.index};
  const auto holds = [&](sym::Expr condition) { return b.holds(condition); };
  const auto decide = [&](bool yes, bool no) {
    if (yes || no) made.decided = yes != opposite;
  };
  if (sign == "==")
    decide(holds(sym::eq(low, size)) && holds(sym::eq(high, size)),
           holds(sym::lt(high, size)) || holds(sym::gt(low, size)));
  else if (sign == "<")
    decide(holds(sym::lt(high, size)), holds(sym::ge(low, size)));
  else
    decide(holds(sym::le(high, size)), holds(sym::gt(low, size)));
  if (made.decided || (index.scale != 1 && index.scale != -1)) return made;
  // The position at which the index is `size`; of a descending index, the first one that is below.
  sym::Expr at = index.scale == 1 ? size - index.offset : index.offset - size;
  if (sign == "==") {
    if (b.holds(sym::eq(at, 0))) at = 1;
  } else if ((index.scale == 1) == (sign == "<=")) {
    at = at + 1;
  }
  at = b.simplify(at);
  if (b.holds(sym::ge(at, 0)) && b.holds(sym::le(at, ranges.extent_of(index.index)))) made.boundary = at;
  return made;
}

}  // namespace

std::optional<sym::Expr> known_size(const Builder& b, ops::Term value) {
  const auto elements = b.known(value.id());
  if (!elements || elements->size() != 1) return std::nullopt;
  return elements->front();
}

std::optional<Affine> affine(const Builder& builder, const std::string& sign, const CValue& a,
                             const CValue& b) {
  if (a.affine.has_value() == b.affine.has_value()) return std::nullopt;
  const auto other = known_size(builder, a.affine ? b.term : a.term);
  if (!other) return std::nullopt;
  Affine out = a.affine ? *a.affine : *b.affine;
  if (sign == "+" || (sign == "-" && a.affine)) {
    out.offset = sign == "+" ? out.offset + *other : out.offset - *other;
  } else if (sign == "-") {
    out.scale = -out.scale;
    out.offset = *other - out.offset;
  } else if (sign == "*" && other->is_const() && other->value() != 0 && is_small(other->value()) &&
             is_small(out.scale)) {
    out.scale *= other->value();
    out.offset = out.offset * *other;
  } else {
    return std::nullopt;
  }
  return out;
}

std::optional<Affine> as_type(const Builder& builder, const CRanges& ranges,
                              const std::optional<Affine>& index, DType dtype) {
  if (!index || is_float(dtype) || info(dtype).bits < 32) return std::nullopt;
  const bool wraps = !is_signed(dtype) && !builder.holds(sym::ge(ends_of(ranges, *index).low, 0));
  return wraps ? std::nullopt : index;
}

IndexComparison compare(const Builder& builder, const CRanges& ranges, const std::string& sign,
                        const CValue& a, const CValue& b, DType dtype) {
  if (!is_comparison(sign) || is_float(dtype) || a.affine.has_value() == b.affine.has_value()) return {};
  const auto size = known_size(builder, a.affine ? b.term : a.term);
  if (!size) return {};
  const Affine& index = a.affine ? *a.affine : *b.affine;
  // Those of unsigned types are compared as they wrap.
  if (!is_signed(dtype) &&
      (!builder.holds(sym::ge(*size, 0)) || !builder.holds(sym::ge(ends_of(ranges, index).low, 0))))
    return {};
  return compare_index(builder, ranges, a.affine ? sign : mirrored(sign), index, *size);
}

std::set<int> read_outside(const Builder& b, const CRanges& ranges, ops::Term x,
                           const std::vector<CValue>& indices) {
  std::set<int> out;
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto& affine = indices[d].affine;
    if (!affine && !known_size(b, indices[d].term)) return {};
    if (affine && !is_inside(b, ranges, *affine, x.dim(static_cast<int64_t>(d)))) out.insert(affine->index);
  }
  return out;
}

std::optional<ops::Term> view_of(Builder& b, const CRanges& ranges, ops::Term x,
                                 const std::vector<CValue>& indices) {
  graph::Shape starts, extents, aligned(static_cast<size_t>(ranges.rank()), sym::Expr(1));
  std::vector<int64_t> steps;
  std::vector<std::pair<int64_t, int64_t>> order;  // the dim of the result, that of x
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto& affine = indices[d].affine;
    const auto constant = known_size(b, indices[d].term);
    if (!affine && !constant) return std::nullopt;
    const sym::Expr start = affine ? affine->offset : *constant,
                    extent = affine ? ranges.extent_of(affine->index) : 1;
    const int64_t scale = affine ? affine->scale : 1, at = affine ? ranges.dim_of(affine->index) : -1;
    const sym::Expr dim = x.dim(static_cast<int64_t>(d));
    if (affine ? !is_inside(b, ranges, *affine, dim)
               : !b.holds(sym::ge(start, 0)) || !b.holds(sym::lt(start, dim)))
      return std::nullopt;
    if (affine && std::ranges::count(order, at, &std::pair<int64_t, int64_t>::first) > 0) return std::nullopt;
    order.emplace_back(at, static_cast<int64_t>(d));
    if (affine) aligned[static_cast<size_t>(at)] = extent;
    starts.push_back(start);
    extents.push_back(extent);
    steps.push_back(scale);
  }
  std::ranges::sort(order);
  std::vector<int64_t> permutation;
  for (const auto& [at, d] : order) permutation.push_back(d);
  const ops::Term part(
      b, b.add1(OpKind::kSlice, {x.id()}, {{"starts", starts}, {"extents", extents}, {"steps", steps}}));
  return ops::reshape(ops::permute(part, permutation), aligned);
}

ops::Term gathered(Builder& b, ops::Term x, const std::vector<CValue>& indices) {
  std::optional<ops::Term> flat;
  for (size_t d = 0; d < indices.size(); ++d) {
    const sym::Expr dim = x.dim(static_cast<int64_t>(d));
    const ops::Term index = ops::cast(indices[d].term, DType::kI64, false);
    const ops::Term inside = ops::maximum(ops::minimum(index, ops::size_as(b, DType::kI64, dim - 1)), 0.0);
    flat = flat ? *flat * ops::size_as(b, DType::kI64, dim) + inside : inside;
  }
  return ops::gather(ops::reshape(x, {ops::count(x.shape())}), *flat, 0);
}

}  // namespace stridec::extend
