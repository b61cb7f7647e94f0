#include "compiler/ops/composite/shape.h"

#include <algorithm>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

std::vector<sym::Expr> size_values(Term x, const std::string& what, sym::Expr lower, sym::Expr upper) {
  Builder& b = x.builder();
  if (!b.known(x)) {
    x = cast(x, DType::kI64);
    const auto limit = static_cast<double>(kLargestSize);
    if (lower.is_const(-kLargestSize) && upper.is_const(kLargestSize)) x = minimum(maximum(x, -limit), limit);
  }
  return b.elements_of(x, what, lower, upper);
}

namespace {

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
  Target(Term x, Shape given, bool zero_copies)
      : b_(x.builder()), x_(x), given_(std::move(given)), zero_copies_(zero_copies) {
    for (size_t i = 0; i < given_.size(); ++i) {
      if (given_[i].is_const() && given_[i].value() < -1)
        does_not_fit(cat("shape has a size of ", given_[i].value()));
      if (!given_[i].is_const(-1)) continue;
      if (rest_) does_not_fit("shape has -1 twice");
      rest_ = i;
    }
  }

  Shape sizes() {
    if (std::any_of(given_.begin(), given_.end(), [&](sym::Expr e) { return is_from_data(e); }))
      return known_at_run();
    Shape out = with_copies();
    // If x is empty and copying x's dims does not fit, a 0 is a size, like a symbol whose value is 0.
    const bool empty = zero_copies_ && b_.holds(sym::eq(count(x_.shape()), 0));
    return empty && b_.prove(sym::eq(count(out), 0)) == sym::Answer::kNo ? given_ : out;
  }

 private:
  bool is_from_data(sym::Expr e) const { return b_.is_bound_in_run(e) && !b_.holds(sym::ge(e, 0)); }
  bool has_dim(size_t i) const { return static_cast<int64_t>(i) < x_.rank(); }
  sym::Expr dim(size_t i) const { return x_.dim(static_cast<int64_t>(i)); }

  // Condition that size i copies x's dim. A symbol never does if the result has as many elements either way.
  sym::Expr copies(size_t i) const {
    if (!zero_copies_ || !has_dim(i)) return 0;
    const sym::Expr is_zero = sym::eq(given_[i], 0);
    if (is_zero.is_const() || is_from_data(given_[i])) return is_zero;
    const bool same = !rest_ || b_.prove(is_zero) == sym::Answer::kNo || dim(i) == given_[i] ||
                      b_.known_facts().with(is_zero).holds(sym::eq(dim(i), 0));
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
    out[*rest_] = b_.simplify(divide(std::move(total), std::move(known)));
    if (out[*rest_].op() == sym::Op::kFloorDiv && out[*rest_].arg(1).is_const(0))
      does_not_fit("the size of -1 cannot be inferred, since another is 0");
    return out;
  }

  // Interprets sizes known only at run time: 0 and -1 become selects.
  Shape known_at_run() {
    Shape out = given_, total = x_.shape();
    sym::Expr rests = 0, known = 1;
    std::vector<sym::Expr> is_rest;
    for (size_t i = 0; i < given_.size(); ++i) {
      b_.require(sym::ge(given_[i], -1), "shape has a size of {0}", {given_[i]});
      is_rest.push_back(is_from_data(given_[i]) ? sym::lt(given_[i], 0) : sym::Expr(rest_ == i));
      rests += is_rest[i];
      if (zero_copies_ && !has_dim(i))
        b_.require(sym::ne(given_[i], 0), cat("shape copies dim ", i, " of a tensor of rank ", x_.rank()));
      const sym::Expr copied = rest_ == i ? sym::Expr(0) : copies(i);
      out[i] = sym::select(copied, dim_or(i, 1), given_[i]);
      if (has_dim(i)) total[i] = sym::select(copied, 1, total[i]);
      known *= sym::select(sym::logical_or(is_rest[i], copied), 1, given_[i]);
    }
    b_.require(sym::le(rests, 1), "shape has -1 twice");
    const sym::Expr left = sym::floordiv(count(total), sym::max(known, 1));
    for (size_t i = 0; i < out.size(); ++i) out[i] = sym::select(is_rest[i], left, out[i]);
    return named(b_, std::move(out), "size");
  }

  sym::Expr dim_or(size_t i, sym::Expr otherwise) const { return has_dim(i) ? dim(i) : otherwise; }

  Builder& b_;
  Term x_;
  Shape given_;
  bool zero_copies_;
  std::optional<size_t> rest_;
};

}  // namespace

Shape reshape_target(Term x, const Shape& given, bool zero_copies) {
  return Target(x, given, zero_copies).sizes();
}

Term squeeze_axes(Term x, const Axes& axes) {
  Builder& b = x.builder();
  for (int64_t d = 0; d < x.rank(); ++d)
    b.require(sym::logical_or(sym::logical_not(axes.has(d)), sym::eq(x.dim(d), 1)),
              cat("cannot squeeze dim ", d, " of size {0}"), {x.dim(d)});
  if (const auto known = axes.known()) return squeeze(x, *known);
  return reshape(x, named(b, without(x.shape(), axes), "size"));
}

Term unsqueeze_axes(Term x, const Axes& axes) {
  if (auto dims = axes.known()) {
    std::sort(dims->begin(), dims->end());
    return unsqueeze(x, *dims);
  }
  return reshape(x, named(x.builder(), between_ones(x.shape(), axes), "size"));
}

// ---- slices ----

namespace {

// Start and extent of data[start:end:step] by NumPy's rules: negative values count from the end, out-of-range
// values are clamped.
struct SliceRange {
  sym::Expr start, extent;
};
SliceRange slice_range(Builder& b, sym::Expr start, sym::Expr end, sym::Expr step, sym::Expr size) {
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
  const auto forward = [&](sym::Expr by) -> SliceRange {
    const sym::Expr from = clamp(start, 0, size), to = clamp(end, 0, size);
    return {from, b.simplify(sym::max(sym::ceildiv(to - from, by), 0))};
  };
  const auto backward = [&](sym::Expr by) -> SliceRange {
    const sym::Expr from = clamp(start, 0, size - 1), to = clamp(end, -1, size - 1);
    // An empty range has no element 0 to start from.
    return {from, b.simplify(sym::max(sym::min(sym::ceildiv(from - to, by), size), 0))};
  };
  const sym::Expr up = sym::gt(step, 0);
  if (b.holds(up)) return forward(step);
  if (b.holds(sym::lt(step, 0))) return backward(-step);
  const SliceRange a = forward(sym::max(step, 1)), z = backward(sym::max(-step, 1));
  return {b.simplify(sym::select(up, a.start, z.start)), b.simplify(sym::select(up, a.extent, z.extent))};
}

}  // namespace

Term slice_axes(Term x, const Axes& axes, const SliceBounds& bounds) {
  Builder& b = x.builder();
  std::vector<sym::Expr> steps = bounds.steps;
  for (sym::Expr& step : steps) {
    b.require(sym::ne(step, 0), "slice has a step of 0");
    // Steps beyond the largest size all select one element.
    if (step.is_const()) step = std::clamp(step.value(), -kLargestSize, kLargestSize);
  }
  Shape from(x.shape().size(), 0), extents = x.shape(), by(x.shape().size(), 1);
  for (size_t d = 0; d < x.shape().size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    const sym::Expr sliced = axes.has(dim), size = x.dim(dim);
    if (sliced.is_const(0)) continue;
    const auto chosen = [&](const std::vector<sym::Expr>& values, sym::Expr otherwise, const char* what) {
      return named(b, axes.pick(dim, values, otherwise), what, -kLargestSize, kLargestSize);
    };
    by[d] = chosen(steps, 1, "step");
    const SliceRange range = slice_range(b, chosen(bounds.starts, 0, "start"),
                                         chosen(bounds.ends, kLargestSize, "end"), by[d], size);
    from[d] = named(b, range.start, "from", 0, kLargestSize);
    extents[d] = named(b, range.extent, "extent", 0, size);
  }
  return slice_dims(x, from, extents, by);
}

// ---- padding, repetition, parts ----

Term wrap(Term x, Shape before, Shape after) {
  Builder& b = x.builder();
  const auto negative = [&](Shape& amounts) {
    Shape out;
    for (sym::Expr& amount : amounts) {
      out.push_back(b.simplify(sym::min(amount, 0)));
      amount = b.simplify(sym::max(amount, 0));
    }
    return out;
  };
  const Shape from = negative(before), to = negative(after);
  const auto is_zero = [](sym::Expr e) { return e.is_const(0); };
  const bool whole = std::ranges::all_of(from, is_zero) && std::ranges::all_of(to, is_zero);
  const Term kept = whole ? x : pad(x, from, to, 0.0);
  return {b, pad(b, kept.id(), before, after, std::nullopt, "wrap")};
}

Term pad_axes(Term x, const Axes& axes, const AxisPadding& padding, Term value) {
  Shape before, after;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto chosen = [&](const std::vector<sym::Expr>& values) {
      return named(x.builder(), axes.pick(d, values, 0), "pad", -kLargestSize, kLargestSize);
    };
    before.push_back(chosen(padding.before));
    after.push_back(chosen(padding.after));
  }
  if (padding.mode == "wrap") return wrap(x, before, after);
  return pad(x, before, after, cast(value, x.dtype()), padding.mode);
}

Term tile(Term x, const std::vector<sym::Expr>& repeats) {
  if (std::ssize(repeats) != x.rank())
    does_not_fit(cat("repeats has ", repeats.size(), " values for a tensor of rank ", x.rank()));
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
  return reshape(expand(reshape(x, split), stretched), joined);
}

std::vector<Term> split_sizes(Term x, int64_t dim, const std::vector<sym::Expr>& sizes) {
  Builder& b = x.builder();
  b.require(sym::eq(sym::sum(sizes), x.dim(dim)), "the sizes of the parts add up to {0}, but the dim has {1}",
            {sym::sum(sizes), x.dim(dim)});
  std::vector<Term> out;
  sym::Expr start = 0;
  for (sym::Expr size : sizes) {
    out.push_back(slice(x, dim, start, size));
    start = b.simplify(start + size);
  }
  return out;
}

std::vector<sym::Expr> equal_parts(Builder& b, sym::Expr size, int64_t parts) {
  const sym::Expr each = b.simplify(sym::ceildiv(size, parts));
  std::vector<sym::Expr> sizes(static_cast<size_t>(parts - 1), each);
  sizes.push_back(b.simplify(size - each * (parts - 1)));
  return sizes;
}

// ---- blocks ----

Term depth_to_space(Term x, int64_t s, bool depth_first) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(0), h = x.dim(2), w = x.dim(3),
                  depth = b.simplify(sym::floordiv(x.dim(1), s * s));
  b.require(sym::eq(depth * (s * s), x.dim(1)), "{0} channels do not divide into blocks", {x.dim(1)});
  const Term blocks = depth_first ? permute(reshape(x, {n, depth, s, s, h, w}), {0, 1, 4, 2, 5, 3})
                                  : permute(reshape(x, {n, s, s, depth, h, w}), {0, 3, 4, 1, 5, 2});
  return reshape(blocks, {n, depth, h * s, w * s});
}

Term space_to_depth(Term x, int64_t s) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(0), ch = x.dim(1), h = b.simplify(sym::floordiv(x.dim(2), s)),
                  w = b.simplify(sym::floordiv(x.dim(3), s));
  b.require(sym::logical_and(sym::eq(h * s, x.dim(2)), sym::eq(w * s, x.dim(3))),
            "{0} x {1} does not divide into blocks", {x.dim(2), x.dim(3)});
  const Term blocks = permute(reshape(x, {n, ch, h, s, w, s}), {0, 3, 5, 1, 2, 4});
  return reshape(blocks, {n, ch * (s * s), h, w});
}

}  // namespace stridec::ops
