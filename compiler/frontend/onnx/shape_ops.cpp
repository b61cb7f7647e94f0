// Shape operators: views, joins, and tensors made from sizes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/squeeze.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/term.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// total / product(known) for products of sizes. Cancels common factors first, so that the result is simple
// whatever the symbols are. A 0 on both sides cancels too, like a symbol whose value is 0.
sym::Expr divide(Shape total, Shape known) {
  for (auto it = known.begin(); it != known.end();) {
    const bool leaves = !it->is_const() || it->is_const(0);
    auto same = leaves ? std::find(total.begin(), total.end(), *it) : total.end();
    if (same == total.end()) {
      ++it;
      continue;
    }
    total.erase(same);
    it = known.erase(it);
  }
  return sym::floordiv(count(total), count(known));
}

// Reshape's target in ONNX's encoding: a size, 0 for x's dim at the same position, -1 for the remaining size.
class Target {
 public:
  Target(Context& c, Term x, std::vector<sym::Expr> given, bool zero_copies)
      : c_(c), x_(x), given_(std::move(given)), zero_copies_(zero_copies) {
    for (size_t i = 0; i < given_.size(); ++i) {
      if (given_[i].is_const() && given_[i].value() < -1)
        c.does_not_fit(cat("shape has a size of ", given_[i].value()));
      if (!given_[i].is_const(-1)) continue;
      if (rest_) c.does_not_fit("shape has -1 twice");
      rest_ = i;
    }
  }

  Shape sizes() {
    if (std::any_of(given_.begin(), given_.end(), [&](sym::Expr e) { return is_from_data(e); }))
      return told_by_run();
    Shape out = with_copies();
    // If x is empty and copying x's dims does not fit, a 0 is a size, like a symbol whose value is 0.
    const bool empty = zero_copies_ && c_.b.holds(sym::eq(count(x_.shape()), 0));
    return empty && c_.b.prove(sym::eq(count(out), 0)) == sym::Answer::kNo ? given_ : out;
  }

 private:
  bool is_from_data(sym::Expr e) const { return c_.b.is_bound_in_run(e) && !c_.b.holds(sym::ge(e, 0)); }
  bool has_dim(size_t i) const { return static_cast<int64_t>(i) < x_.rank(); }
  sym::Expr dim(size_t i) const { return x_.dim(static_cast<int64_t>(i)); }

  // Condition that size i copies x's dim. A symbol never does if the result has as many elements either way.
  sym::Expr copies(size_t i) const {
    if (!zero_copies_ || !has_dim(i)) return 0;
    const sym::Expr is_zero = sym::eq(given_[i], 0);
    if (is_zero.is_const() || is_from_data(given_[i])) return is_zero;
    const bool same = !rest_ || c_.b.prove(is_zero) == sym::Answer::kNo || dim(i) == given_[i] ||
                      c_.b.known_facts().with(is_zero).holds(sym::eq(dim(i), 0));
    return same ? sym::Expr(0) : is_zero;
  }

  // Copied dims of x cancel even if they are 0. (0, -1), torch's flatten, therefore works for them, which
  // onnxruntime rejects.
  Shape with_copies() {
    Shape out = given_, total = x_.shape(), known;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (rest_ == i) continue;
      const sym::Expr copied = copies(i);
      if (!copied.is_const(0)) {
        out[i] = sym::select(copied, dim(i), given_[i]);
        total[i] = sym::select(copied, 1, total[i]);
      }
      if (!copied.is_const(1)) known.push_back(sym::select(copied, 1, given_[i]));
    }
    if (!rest_) return out;
    out[*rest_] = c_.b.simplify(divide(std::move(total), std::move(known)));
    if (out[*rest_].op() == sym::Op::kFloorDiv && out[*rest_].arg(1).is_const(0))
      c_.does_not_fit("beside a size of 0 shape has -1, which may be any size");
    return out;
  }

  // Interprets sizes known only at run time: 0 and -1 become selects.
  Shape told_by_run() {
    Shape out = given_, total = x_.shape();
    sym::Expr rests = 0, known = 1;
    std::vector<sym::Expr> is_rest;
    for (size_t i = 0; i < given_.size(); ++i) {
      c_.b.require(sym::ge(given_[i], -1), "shape has a size of {0}", {given_[i]});
      is_rest.push_back(is_from_data(given_[i]) ? sym::lt(given_[i], 0) : sym::Expr(rest_ == i));
      rests += is_rest[i];
      if (zero_copies_ && !has_dim(i))
        c_.b.require(sym::ne(given_[i], 0), cat("shape copies dim ", i, " of a tensor of rank ", x_.rank()));
      const sym::Expr copied = rest_ == i ? sym::Expr(0) : copies(i);
      out[i] = sym::select(copied, dim_or(i, 1), given_[i]);
      if (has_dim(i)) total[i] = sym::select(copied, 1, total[i]);
      known *= sym::select(sym::logical_or(is_rest[i], copied), 1, given_[i]);
    }
    c_.b.require(sym::le(rests, 1), "shape has -1 twice");
    const sym::Expr left = sym::floordiv(count(total), sym::max(known, 1));
    for (size_t i = 0; i < out.size(); ++i) out[i] = sym::select(is_rest[i], left, out[i]);
    return named(c_.b, std::move(out), "size");
  }

  sym::Expr dim_or(size_t i, sym::Expr otherwise) const { return has_dim(i) ? dim(i) : otherwise; }

  Context& c_;
  Term x_;
  Shape given_;
  bool zero_copies_;
  std::optional<size_t> rest_;
};

Outputs op_reshape(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> given;
  if (c.version >= 5) {
    given = c.sizes_of(1, "shape", -1, kLargestSize);
  } else {
    for (int64_t d : c.integers("shape")) given.emplace_back(d);
  }
  const bool zero_copies = c.version < 14 || c.integer("allowzero", 0) == 0;
  return {reshape(x, Target(c, x, std::move(given), zero_copies).sizes())};
}

Outputs flatten(Context& c) {
  const Term x = c.in(0);
  const int64_t given = c.integer("axis", 1);
  const int64_t axis = given == x.rank() ? given : c.axis(given, std::max<int64_t>(x.rank(), 1));
  return {reshape(x, {count(x.shape(), 0, axis), count(x.shape(), axis, x.rank())})};
}

Outputs op_squeeze(Context& c) {
  const Term x = c.in(0);
  const std::optional<Axes> axes = c.axes_of(1, "axes", x.rank());
  if (!axes) return {squeeze_ones(c, x)};
  for (int64_t d = 0; d < x.rank(); ++d)
    c.b.require(sym::logical_or(sym::logical_not(axes->has(d)), sym::eq(x.dim(d), 1)),
                cat("cannot squeeze dim ", d, " of size {0}"), {x.dim(d)});
  if (const auto known = axes->known()) return {squeeze(x, *known)};
  return {reshape(x, named(c.b, without(x.shape(), *axes), "size"))};
}

Outputs op_unsqueeze(Context& c) {
  const Term x = c.in(0);
  const std::optional<int64_t> more = c.version >= 13 ? sym::as_const(count(c.in(1).shape()))
                                                      : static_cast<int64_t>(c.integers("axes").size());
  if (!more)
    c.unsupported(cat("the number of axes must be known at compile time, but that of ", c.b.display(c.in(1)),
                      " depends on the inputs"));
  const std::optional<Axes> axes = c.axes_of(1, "axes", x.rank() + *more);
  if (!axes) c.does_not_fit("axes must be given");
  if (auto dims = axes->known()) {
    std::sort(dims->begin(), dims->end());
    return {unsqueeze(x, *dims)};
  }
  return {reshape(x, named(c.b, between_ones(x.shape(), *axes), "size"))};
}

Outputs op_transpose(Context& c) {
  const Term x = c.in(0);
  Dims order(static_cast<size_t>(x.rank()));
  std::iota(order.rbegin(), order.rend(), 0);
  if (c.has_attribute("perm")) order = c.axes(c.integers("perm"), x.rank());
  if (static_cast<int64_t>(order.size()) != x.rank())
    c.does_not_fit(cat("perm has ", order.size(), " axes for a tensor of rank ", x.rank()));
  return {permute(x, order)};
}

Outputs op_expand(Context& c) {
  const Term x = c.in(0);
  const Shape target = c.sizes_of(1, "shape", 0, kLargestSize);
  return {Term(c.b, broadcast_to(c.b, x, target))};
}

Outputs op_concat(Context& c) {
  std::vector<Term> parts;
  for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(c.in(i));
  return {concat(parts, c.axis(c.integer("axis", c.version < 4 ? 1 : 0), parts.at(0).rank()))};
}

Outputs split(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const auto parts = c.node.outputs.size();
  std::vector<sym::Expr> sizes;
  if (c.version >= 13 && c.has(1)) {
    sizes = c.sizes_of(1, "split", 0, x.dim(axis));
  } else if (c.has_attribute("split")) {
    for (int64_t s : c.integers("split")) sizes.emplace_back(s);
  } else {
    // Equal parts, except for a shorter last one.
    const auto n =
        c.version >= 18 ? c.integer("num_outputs", static_cast<int64_t>(parts)) : static_cast<int64_t>(parts);
    const sym::Expr each = c.b.simplify(sym::ceildiv(x.dim(axis), n));
    if (c.version < 18)
      c.b.require(sym::eq(each * n, x.dim(axis)), cat("{0} does not divide into ", n, " equal parts"),
                  {x.dim(axis)});
    sizes.assign(static_cast<size_t>(n - 1), each);
    sizes.push_back(c.b.simplify(x.dim(axis) - each * (n - 1)));
  }
  if (sizes.size() != parts)
    c.does_not_fit(cat("split gives ", sizes.size(), " sizes for ", parts, " outputs"));
  c.b.require(sym::eq(sym::sum(sizes), x.dim(axis)),
              "the sizes of the parts add up to {0}, but the dim has {1}", {sym::sum(sizes), x.dim(axis)});
  Outputs out;
  sym::Expr start = 0;
  for (sym::Expr size : sizes) {
    out.push_back(slice(x, axis, start, size));
    start = c.b.simplify(start + size);
  }
  return out;
}

// The node's axes, or the first `count` axes if it has none.
Axes axes_or_first(const Context& c, size_t input, int64_t rank, size_t count) {
  if (auto given = c.axes_of(input, "axes", rank)) return *given;
  std::vector<sym::Expr> first;
  for (size_t i = 0; i < count; ++i) first.emplace_back(i);
  return axes_of(c.b, first, rank);
}

// Start and extent of data[start:end:step] by NumPy's rules: negative values count from the end, out-of-range
// values are clamped.
struct Range {
  sym::Expr start, extent;
};
Range slice_range(Builder& b, sym::Expr start, sym::Expr end, sym::Expr step, sym::Expr size) {
  const auto from_front = [&](sym::Expr e) {
    if (e.is_const()) return e.value() < 0 ? e + size : e;
    if (b.holds(sym::ge(e, 0))) return e;
    if (b.holds(sym::lt(e, 0))) return e + size;
    return sym::select(sym::lt(e, 0), e + size, e);
  };
  const auto to_the_end = [](sym::Expr e) { return e.is_const() && e.value() >= INT32_MAX; };
  const auto to_the_front = [](sym::Expr e) { return e.is_const() && e.value() <= -int64_t{INT32_MAX}; };
  const auto clamp = [&](sym::Expr e, sym::Expr lower, sym::Expr upper) {
    if (to_the_end(e)) return upper;
    if (to_the_front(e)) return lower;
    return b.simplify(sym::max(lower, sym::min(from_front(e), upper)));
  };
  const auto forward = [&](sym::Expr by) -> Range {
    const sym::Expr from = clamp(start, 0, size), to = clamp(end, 0, size);
    return {from, b.simplify(sym::max(sym::ceildiv(to - from, by), 0))};
  };
  const auto backward = [&](sym::Expr by) -> Range {
    const sym::Expr from = clamp(start, 0, size - 1), to = clamp(end, -1, size - 1);
    // An empty range has no element 0 to start from.
    return {from, b.simplify(sym::max(sym::min(sym::ceildiv(from - to, by), size), 0))};
  };
  const sym::Expr up = sym::gt(step, 0);
  if (b.holds(up)) return forward(step);
  if (b.holds(sym::lt(step, 0))) return backward(-step);
  const Range a = forward(sym::max(step, 1)), z = backward(sym::max(-step, 1));
  return {b.simplify(sym::select(up, a.start, z.start)), b.simplify(sym::select(up, a.extent, z.extent))};
}

Outputs op_slice(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> starts, ends, steps;
  if (c.version < 10) {
    for (int64_t v : c.integers("starts")) starts.emplace_back(v);
    for (int64_t v : c.integers("ends")) ends.emplace_back(v);
  } else {
    starts = c.sizes_of(1, "starts", -kLargestSize, kLargestSize);
    ends = c.sizes_of(2, "ends", -kLargestSize, kLargestSize);
    if (c.has(4)) steps = c.sizes_of(4, "steps", -kLargestSize, kLargestSize);
  }
  const Axes axes = axes_or_first(c, 3, x.rank(), starts.size());
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.at.size() || starts.size() != steps.size())
    c.does_not_fit(cat("slice has ", starts.size(), " starts, ", ends.size(), " ends, ", axes.at.size(),
                       " axes and ", steps.size(), " steps"));
  for (sym::Expr& step : steps) {
    c.b.require(sym::ne(step, 0), "slice has a step of 0");
    // Steps beyond the largest size all select one element.
    if (step.is_const()) step = std::clamp(step.value(), -kLargestSize, kLargestSize);
  }
  Shape from(x.shape().size(), 0), extents = x.shape(), by(x.shape().size(), 1);
  for (size_t d = 0; d < x.shape().size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    const sym::Expr sliced = axes.has(dim), size = x.dim(dim);
    if (sliced.is_const(0)) continue;
    const auto chosen = [&](const std::vector<sym::Expr>& values, sym::Expr otherwise, const char* what) {
      return named(c.b, axes.pick(dim, values, otherwise), what, -kLargestSize, kLargestSize);
    };
    by[d] = chosen(steps, 1, "step");
    const Range range =
        slice_range(c.b, chosen(starts, 0, "start"), chosen(ends, kLargestSize, "end"), by[d], size);
    from[d] = named(c.b, range.start, "from", 0, kLargestSize);
    extents[d] = named(c.b, range.extent, "extent", 0, size);
  }
  return {
      Term(c.b, c.b.add1(OpKind::kSlice, {x.id()}, {{"starts", from}, {"extents", extents}, {"steps", by}}))};
}

Outputs op_pad(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> pads;
  if (c.version >= 11) {
    pads = c.sizes_of(1, "pads", -kLargestSize, kLargestSize);
  } else {
    for (int64_t p : c.integers(c.version < 2 ? "paddings" : "pads")) pads.emplace_back(p);
  }
  const Axes axes = axes_or_first(c, 3, x.rank(), static_cast<size_t>(x.rank()));
  if (pads.size() != 2 * axes.at.size())
    c.does_not_fit(cat("pads has ", pads.size(), " values for ", axes.at.size(), " axes"));
  const auto half = pads.begin() + static_cast<int64_t>(axes.at.size());
  Shape before, after;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto chosen = [&](const std::vector<sym::Expr>& values) {
      return named(c.b, axes.pick(d, values, 0), "pad", -kLargestSize, kLargestSize);
    };
    before.push_back(chosen({pads.begin(), half}));
    after.push_back(chosen({half, pads.end()}));
  }
  Term value = number_like(x, c.version < 11 ? c.number("value", 0) : 0);
  if (c.version >= 11 && c.has(2)) value = reshape(c.in(2), {});
  return {Term(c.b, c.b.add1(OpKind::kPad, {x.id(), cast(value, x.dtype()).id()},
                             {{"before", before}, {"after", after}, {"mode", c.text("mode", "constant")}}))};
}

Outputs tile(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> repeats;
  if (c.version < 6) {  // tiles and axis are scalars
    repeats.assign(x.shape().size(), 1);
    repeats.at(static_cast<size_t>(c.axis(c.integers_of(2, "axis").at(0), x.rank()))) =
        c.size_of(1, "tiles", 0, kLargestSize);
  } else {
    repeats = c.sizes_of(1, "repeats", 0, kLargestSize);
  }
  if (static_cast<int64_t>(repeats.size()) != x.rank())
    c.does_not_fit(cat("repeats has ", repeats.size(), " values for a tensor of rank ", x.rank()));
  Shape split, stretched, joined;
  for (size_t d = 0; d < repeats.size(); ++d) {
    if (!repeats[d].is_const(1)) {
      split.push_back(1);
      stretched.push_back(repeats[d]);
    }
    split.push_back(x.shape()[d]);
    stretched.push_back(x.shape()[d]);
    joined.push_back(repeats[d] * x.shape()[d]);
  }
  return {reshape(expand(reshape(x, split), stretched), joined)};
}

Outputs shape_of(Context& c) {
  const Shape shape = c.in(0).shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const auto cut = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = cut(c.integer("start", 0)), end = std::max(cut(c.integer("end", rank)), start);
  const Shape part(shape.begin() + start, shape.begin() + end);
  return {Term(c.b, c.b.elements(part, {end - start}))};
}

Outputs size_of(Context& c) { return {Term(c.b, c.b.elements({count(c.in(0).shape())}, {}))}; }

Outputs constant(Context& c) {
  if (const Tensor* t = c.tensor("value"); t && t->elem_type == kElemString)
    return {constant_strings(c.b, t->strings, {t->dims.begin(), t->dims.end()})};
  if (c.has_attribute("value_string")) return {constant_strings(c.b, c.texts("value_string"), {})};
  if (const auto texts = c.texts("value_strings"); c.has_attribute("value_strings"))
    return {constant_strings(c.b, texts, {static_cast<int64_t>(texts.size())})};
  if (const Tensor* t = c.tensor("value")) return {c.constant(*t)};
  if (const Tensor* t = c.tensor("sparse_value")) return {c.constant(*t)};
  if (const Attribute* a = c.node.find("value_int")) return {Term(c.b, c.b.elements({a->ints.at(0)}, {}))};
  if (const Attribute* a = c.node.find("value_ints")) return {Term(c.b, c.b.integers(a->ints))};
  const Attribute* floats = c.node.find("value_floats");
  if (const Attribute* one = c.node.find("value_float"))
    return {c.number(DType::kF32, static_cast<double>(one->floats.at(0)))};
  if (!floats) c.unsupported("a constant without a value");
  std::vector<uint8_t> bytes(floats->floats.size() * 4);
  for (size_t i = 0; i < floats->floats.size(); ++i)
    write_float(DType::kF32, static_cast<double>(floats->floats[i]), bytes.data() + 4 * i);
  return {Term(c.b, c.b.constant("", {DType::kF32, {static_cast<int64_t>(floats->floats.size())}},
                                 graph::own(std::move(bytes))))};
}

Outputs constant_of_shape(Context& c) {
  const Shape shape = c.sizes_of(0, "shape", 0, kLargestSize);
  const Tensor* value = c.tensor("value");
  const Term scalar = value ? reshape(c.constant(*value), {}) : c.number(DType::kF32, 0);
  return {expand(scalar, shape)};
}

Outputs range(Context& c) {
  const Term start = c.in(0), limit = c.in(1), delta = c.in(2);
  const DType type = start.dtype();
  sym::Expr length = 0;
  const auto known = [&](size_t i) -> std::optional<sym::Expr> {
    const auto e = c.b.known(c.in(i));
    return e && e->size() == 1 ? std::optional((*e)[0]) : std::nullopt;
  };
  const auto k0 = known(0), k1 = known(1), k2 = known(2);
  const auto step = k2 ? sym::as_const(*k2) : std::nullopt;
  if (c.constant_number(2) == 0.0) c.does_not_fit("the step is 0");
  if (k0 && k1 && step && *step != 0) {
    length = *step > 0 ? sym::ceildiv(*k1 - *k0, *step) : sym::ceildiv(*k0 - *k1, -*step);
    length = c.b.simplify(sym::max(length, 0));
  } else {
    const auto n0 = c.constant_number(0), n1 = c.constant_number(1), n2 = c.constant_number(2);
    if (n0 && n1 && n2 && *n2 != 0) {
      const double steps = std::ceil((*n1 - *n0) / *n2);
      if (!(steps <= static_cast<double>(kLargestSize)))
        c.does_not_fit(cat("from ", *n0, " to ", *n1, " by ", *n2, " are more numbers than a tensor holds"));
      length = static_cast<int64_t>(std::max(steps, 0.0));
    } else {
      const DType wide = type == DType::kF32 || is_storage_float(type) ? DType::kF32 : DType::kF64;
      const Term steps = apply(OpKind::kCeil, (cast(limit, wide) - cast(start, wide)) / cast(delta, wide));
      length = c.b.elements_of(cast(maximum(steps, 0), DType::kI64), "range", 0, kLargestSize).at(0);
    }
  }
  const DType compute = is_storage_float(type) ? DType::kF32 : type;
  const Term i = cast(index_along(c.b, {length}, 0, DType::kI64), compute);
  return {cast(cast(start, compute) + i * cast(delta, compute), type)};
}

Outputs eye_like(Context& c) {
  const Term x = c.in(0);
  const DType type = c.dtype("dtype", x.dtype());
  const Term row = index_along(c.b, x.shape(), 0, DType::kI64),
             column = index_along(c.b, x.shape(), 1, DType::kI64);
  return {cast(equal(column, row + static_cast<double>(c.integer("k", 0))), type)};
}

Outputs trilu(Context& c) {
  const Term x = c.in(0);
  sym::Expr k = 0;
  if (c.has(1)) k = c.size_of(1, "k", -kLargestSize, kLargestSize);
  const Shape plane(x.shape().end() - 2, x.shape().end());
  const Term row = index_along(c.b, plane, 0, DType::kI64), column = index_along(c.b, plane, 1, DType::kI64);
  const Term diagonal = row + size_as(c.b, DType::kI64, k);
  const Term keep = c.integer("upper", 1) ? greater_equal(column, diagonal) : less_equal(column, diagonal);
  return {select(keep, x, number_like(x, 0))};
}

Outputs depth_to_space(Context& c) {
  const Term x = c.in(0);
  const int64_t s = c.integer("blocksize");
  const sym::Expr n = x.dim(0), h = x.dim(2), w = x.dim(3),
                  depth = c.b.simplify(sym::floordiv(x.dim(1), s * s));
  c.b.require(sym::eq(depth * (s * s), x.dim(1)), "{0} channels do not divide into blocks", {x.dim(1)});
  const bool crd = c.text("mode", "DCR") == "CRD";
  const Term blocks = crd ? permute(reshape(x, {n, depth, s, s, h, w}), {0, 1, 4, 2, 5, 3})
                          : permute(reshape(x, {n, s, s, depth, h, w}), {0, 3, 4, 1, 5, 2});
  return {reshape(blocks, {n, depth, h * s, w * s})};
}

Outputs space_to_depth(Context& c) {
  const Term x = c.in(0);
  const int64_t s = c.integer("blocksize");
  const sym::Expr n = x.dim(0), ch = x.dim(1), h = c.b.simplify(sym::floordiv(x.dim(2), s)),
                  w = c.b.simplify(sym::floordiv(x.dim(3), s));
  c.b.require(sym::logical_and(sym::eq(h * s, x.dim(2)), sym::eq(w * s, x.dim(3))),
              "{0} x {1} does not divide into blocks", {x.dim(2), x.dim(3)});
  const Term blocks = permute(reshape(x, {n, ch, h, s, w, s}), {0, 3, 5, 1, 2, 4});
  return {reshape(blocks, {n, ch * (s * s), h, w})};
}

constexpr Row kRows[] = {
    {"Concat", op_concat},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"DepthToSpace", depth_to_space},
    {"Expand", op_expand},
    {"EyeLike", eye_like},
    {"Flatten", flatten},
    {"Pad", op_pad},
    {"Range", range},
    {"Reshape", op_reshape},
    {"Shape", shape_of},
    {"Size", size_of},
    {"Slice", op_slice},
    {"SpaceToDepth", space_to_depth},
    {"Split", split},
    {"Squeeze", op_squeeze},
    {"Tile", tile},
    {"Transpose", op_transpose},
    {"Trilu", trilu},
    {"Trilu", trilu, 1, kAnyLater, "com.microsoft"},
    {"Range", range, 1, kAnyLater, "com.microsoft"},
    {"Unsqueeze", op_unsqueeze},
};

}  // namespace

std::span<const Row> shape_rows() { return kRows; }

}  // namespace stridec::onnx
