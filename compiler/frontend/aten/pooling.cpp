// Pooling, and windows as columns.
#include <algorithm>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Pools over the last n dims of an input with or without a batch.
struct Pooled {
  Term x;  // [batch, channels, spatial...]
  bool added;
};
Pooled batched(const Context& c, size_t n) {
  const Term x = c.in("self");
  const bool added = x.shape().size() == n + 1;
  if (!added && x.shape().size() != n + 2)
    c.does_not_fit(cat("pooling over ", n, " dims of a tensor of rank ", x.rank()));
  return {added ? unsqueeze(x, {0}) : x, added};
}
Value unbatched(Term y, bool added) { return added ? squeeze(y, {0}) : y; }

graph::Attributes window(const Context& c, Term x, size_t n) {
  const Dims size = c.spatial("kernel_size", n), padding = c.spatial("padding", n);
  const Value& stride = c.arg("stride");
  const bool given = c.has("stride") && (stride.kind == Value::Kind::kInt || !stride.items.empty());
  const Dims strides = given ? c.spatial("stride", n) : size;
  const Dims dilations = c.names("dilation") ? c.spatial("dilation", n) : Dims(n, 1);
  Shape extra(n, 0);
  for (size_t i = 0; i < n && c.flag("ceil_mode"); ++i) {
    // A window must not start in the padding at the end.
    const sym::Expr in = x.shape()[i + 2], padded = in + 2 * padding[i],
                    reach = (size[i] - 1) * dilations[i] + 1;
    sym::Expr out = sym::ceildiv(padded - reach, strides[i]) + 1;
    out = sym::select(sym::ge((out - 1) * strides[i], in + padding[i]), out - 1, out);
    extra[i] = c.b.simplify((out - 1) * strides[i] + reach - padded);
  }
  const Shape pads(padding.begin(), padding.end());
  return {{"window", Shape(size.begin(), size.end())},
          {"strides", strides},
          {"dilations", dilations},
          {"before", pads},
          {"after", pads},
          {"extra", extra}};
}

template <size_t n, bool indices>
Results max_pool(Context& c) {
  const Pooled in = batched(c, n);
  graph::Attributes attributes = window(c, in.x, n);
  Results out;
  if (indices)
    out.push_back(unbatched(Term(c.b, c.b.add1(OpKind::kWindowArgMax, {in.x.id()}, attributes)), in.added));
  attributes.set("kind", std::string("max"));
  out.insert(out.begin(),
             unbatched(Term(c.b, c.b.add1(OpKind::kReduceWindow, {in.x.id()}, attributes)), in.added));
  return out;
}
template <size_t n>
Results avg_pool(Context& c) {
  const Pooled in = batched(c, n);
  graph::Attributes attributes = window(c, in.x, n);
  if (c.names("divisor_override") && c.has("divisor_override")) {
    attributes.set("kind", std::string("sum"));
    const Term sum(c.b, c.b.add1(OpKind::kReduceWindow, {widen(in.x).id()}, attributes));
    return {unbatched(cast(sum / c.number("divisor_override"), in.x.dtype(), false), in.added)};
  }
  attributes.set("count_include_pad", int64_t{c.flag("count_include_pad")});
  return {unbatched(Term(c.b, c.b.add1(OpKind::kAveragePool, {in.x.id()}, attributes)), in.added)};
}

// Window i of `out` covers floor(i * in / out) up to ceil((i + 1) * in / out).
struct Bins {
  Term first, last;  // [out], i64; last is exclusive
};
Bins bins(Builder& b, sym::Expr in, sym::Expr out) {
  const Term i = index_along(b, {out}, 0, DType::kI64), n = size_as(b, DType::kI64, in),
             m = size_as(b, DType::kI64, out);
  return {i * n / m, ((i + 1.0) * n + m - 1.0) / m};
}

// Each window of the last dim as a row of its possible elements, [..., out, longest], and which of them are
// in it.
struct Rows {
  Term values, inside, position;
};
Rows rows_of(Term x, sym::Expr in, sym::Expr out) {
  Builder& b = x.builder();
  const sym::Expr longest = b.simplify(sym::min(in, sym::ceildiv(in, out) + 1));
  const Bins w = bins(b, in, out);
  const Term at = unsqueeze(w.first, {1}) + index_along(b, {1, longest}, 1, DType::kI64);
  const Term inside = less(at, unsqueeze(w.last, {1})),
             clipped = minimum(at, size_as(b, DType::kI64, in - 1));
  return {gather(x, clipped, x.rank() - 1), inside, clipped};
}

bool divides(Builder& b, sym::Expr in, sym::Expr out) { return b.holds(sym::eq(sym::mod(in, out), 0)); }

// Along one dim, which is moved last and back.
Term adaptive_average(Term x, int64_t dim, sym::Expr out) {
  Builder& b = x.builder();
  const sym::Expr in = x.dim(dim);
  if (out.is_const(1)) return reduce_mean(x, {dim}, kKeep);
  if (in == out) return x;
  const Term last = transpose(x, dim, x.rank() - 1);
  Term y = last;
  if (divides(b, in, out)) {
    Shape shape = last.shape();
    shape.back() = out;
    shape.push_back(b.simplify(sym::floordiv(in, out)));
    y = reduce_mean(reshape(last, shape), {x.rank()});
  } else {
    const Rows r = rows_of(last, in, out);
    const Term count = cast(reduce_sum(cast(r.inside, DType::kI64, false), {1}), last.dtype(), false);
    y = reduce_sum(select(r.inside, r.values, 0), {x.rank()}) / count;
  }
  return transpose(y, dim, x.rank() - 1);
}
template <size_t n>
Results adaptive_avg_pool(Context& c) {
  const Term x = c.in("self");
  Shape sizes = c.sizes("output_size");
  if (sizes.size() == 1) sizes.assign(n, sizes[0]);
  Term y = widen(x);
  // All spatial dims to one is one reduction.
  const bool global = std::all_of(sizes.begin(), sizes.end(), [](sym::Expr s) { return s.is_const(1); });
  Dims dims;
  for (size_t i = 0; i < n; ++i) dims.push_back(x.rank() - static_cast<int64_t>(n - i));
  if (global) return {cast(reduce_mean(y, dims, kKeep), x.dtype(), false)};
  for (size_t i = 0; i < n; ++i) y = adaptive_average(y, dims[i], sizes[i]);
  return {cast(y, x.dtype(), false)};
}

// Positions are flat in the spatial dims. Over two dims the windows are rows of the flattened plane.
template <size_t n>
Results adaptive_max_pool(Context& c) {
  const Term x = c.in("self");
  Shape sizes = c.sizes("output_size");
  if (sizes.size() == 1) sizes.assign(n, sizes[0]);
  const int64_t lead = x.rank() - static_cast<int64_t>(n);
  // The possible elements of each window, [out..., longest...]: flat positions, and which are inside.
  Shape grid(sizes.begin(), sizes.end());
  for (size_t i = 0; i < n; ++i) {
    const sym::Expr in = x.dim(lead + static_cast<int64_t>(i));
    grid.push_back(c.b.simplify(sym::min(in, sym::ceildiv(in, sizes[i]) + 1)));
  }
  Term at = filled(c.b, grid, DType::kI64, 0), inside = filled(c.b, grid, DType::kBool, 1);
  for (size_t i = 0; i < n; ++i) {
    const sym::Expr in = x.dim(lead + static_cast<int64_t>(i));
    const Bins w = bins(c.b, in, sizes[i]);
    Shape first(2 * n, 1), step(2 * n, 1);
    first[i] = sizes[i];
    step[n + i] = grid[n + i];
    const Term place =
        reshape(w.first, first) + reshape(index_along(c.b, {grid[n + i]}, 0, DType::kI64), step);
    inside = logical_and(inside, less(place, reshape(w.last, first)));
    at = at * size_as(c.b, DType::kI64, in) + minimum(place, size_as(c.b, DType::kI64, in - 1));
  }
  Shape flat(sizes.begin(), sizes.end());
  flat.push_back(count(grid, static_cast<int64_t>(n), static_cast<int64_t>(2 * n)));
  at = reshape(at, flat);
  inside = reshape(inside, flat);
  Shape plane(x.shape().begin(), x.shape().begin() + lead);
  plane.push_back(count(x.shape(), lead, x.rank()));
  const Term values = gather(reshape(x, plane), at, lead);
  const Term low = number_like(values, -std::numeric_limits<double>::infinity());
  const Term kept = select(inside, values, low);
  const int64_t last = kept.rank() - 1;
  const Term best = arg_max(kept, last);
  const Term position = gather_elements(expand(at, kept.shape()), unsqueeze(best, {last}), last);
  return {reduce_max(kept, {last}), squeeze(position, {last})};
}

// Where the windows along spatial dim i start, [batch, channels, out]: PyTorch's sequence from one sample of
// [0, 1) for each plane, computed in the dtype of the samples. The last window ends at the last element.
Term fractional_starts(Term sample, sym::Expr in, int64_t size, sym::Expr out) {
  Builder& b = sample.builder();
  const DType to = sample.dtype();
  const Term last = size_as(b, DType::kI64, in - size), steps = size_as(b, DType::kI64, out - 1);
  const Term step = cast(last, to, false) / cast(maximum(steps, 1), to, false);
  const Term i = index_along(b, {1, 1, out}, 2, DType::kI64);
  const auto whole = [&](Term x) { return cast(x, DType::kI64, false); };
  const Term at = whole((cast(i, to, false) + sample) * step) - whole(sample * step);
  return select(less(i, steps), at, last);
}
// Windows of one size at places that a sample for each plane and dim decides. PyTorch's samples begin with
// the last of two dims, and with the first of three. Positions are flat in the spatial dims.
template <size_t n>
Results fractional_max_pool(Context& c) {
  const Pooled in = batched(c, n);
  const Term samples = c.in("random_samples");
  const Dims size = c.spatial("kernel_size", n);
  const Shape out = c.sizes("output_size");
  if (samples.rank() != 3 || out.size() != n) c.does_not_fit("the samples must be [batch, channels, dims]");
  const Shape lead{in.x.dim(0), in.x.dim(1)};
  Term at = filled(c.b, Shape(2 * n + 2, 1), DType::kI64, 0);
  Shape windows(lead), pooled(lead);
  for (size_t i = 0; i < n; ++i) {
    const int64_t place = static_cast<int64_t>(n == 2 ? 1 - i : i), dim = static_cast<int64_t>(i) + 2;
    const Term start = fractional_starts(slice(samples, 2, place, 1), in.x.dim(dim), size[i], out[i]);
    Shape outer = start.shape();
    outer.resize(2);
    outer.resize(2 * n + 2, 1);
    outer[i + 2] = out[i];
    const Term reach =
        positions_along(c.b, size[i], dim + static_cast<int64_t>(n), static_cast<int64_t>(2 * n + 2));
    at = at * size_as(c.b, DType::kI64, in.x.dim(dim)) + reshape(start, outer) + reach;
    windows.push_back(out[i]);
    pooled.push_back(out[i]);
  }
  int64_t elements = 1;
  for (int64_t s : size) windows.push_back(s), elements *= s;
  const sym::Expr places = count(windows, 2, static_cast<int64_t>(2 * n + 2));
  const Term flat = reshape(expand(at, windows), {lead[0], lead[1], places});
  const Term plane = reshape(in.x, {lead[0], lead[1], count(in.x.shape(), 2, static_cast<int64_t>(n + 2))});
  const int64_t last = static_cast<int64_t>(n) + 2;
  pooled.push_back(elements);
  const Term values = reshape(gather_elements(plane, flat, 2), pooled);
  const Term best = unsqueeze(arg_max(values, last), {last});
  const auto result = [&](Term t) {
    return unbatched(squeeze(gather_elements(t, best, last), {last}), in.added);
  };
  return {result(values), result(reshape(flat, pooled))};
}

// Columns of windows: [batch, channels * window, positions], by one gather from the padded image.
Results im2col(Context& c) {
  const Pooled in = batched(c, 2);
  const Dims size = c.spatial("kernel_size", 2), dilation = c.spatial("dilation", 2),
             padding = c.spatial("padding", 2), stride = c.spatial("stride", 2);
  const Term x = ops::pad(in.x, {0, 0, padding[0], padding[1]}, {0, 0, padding[0], padding[1]}, 0);
  Shape out;
  std::vector<Term> at;
  for (size_t i = 0; i < 2; ++i) {
    const sym::Expr n = c.b.simplify(
        sym::floordiv(x.dim(static_cast<int64_t>(i) + 2) - (size[i] - 1) * dilation[i] - 1, stride[i]) + 1);
    out.push_back(n);
    const Shape grid{size[i], n};
    at.push_back(index_along(c.b, grid, 0, DType::kI64) * static_cast<double>(dilation[i]) +
                 index_along(c.b, grid, 1, DType::kI64) * static_cast<double>(stride[i]));
  }
  // [batch, channels, kernel, rows, kernel, columns]
  const Term windows = gather(gather(x, at[0], 2), at[1], 4);
  const Term moved = permute(windows, {0, 1, 2, 4, 3, 5});
  return {unbatched(reshape(moved, {x.dim(0), x.dim(1) * size[0] * size[1], out[0] * out[1]}), in.added)};
}
// The sum of overlapping columns: a scatter that adds.
Results col2im(Context& c) {
  Term x = c.in("self");
  const bool added = x.rank() == 2;
  if (added) x = unsqueeze(x, {0});
  const Shape image = c.sizes("output_size");
  const Dims size = c.spatial("kernel_size", 2), dilation = c.spatial("dilation", 2),
             padding = c.spatial("padding", 2), stride = c.spatial("stride", 2);
  Shape out, padded;
  for (size_t i = 0; i < 2; ++i) {
    padded.push_back(image[i] + 2 * padding[i]);
    out.push_back(c.b.simplify(sym::floordiv(padded[i] - (size[i] - 1) * dilation[i] - 1, stride[i]) + 1));
  }
  const sym::Expr channels = c.b.simplify(sym::floordiv(x.dim(1), size[0] * size[1]));
  const Shape grid{size[0], size[1], out[0], out[1]};
  const auto place = [&](int64_t kernel, int64_t position, size_t i) {
    return index_along(c.b, grid, kernel, DType::kI64) * static_cast<double>(dilation[i]) +
           index_along(c.b, grid, position, DType::kI64) * static_cast<double>(stride[i]);
  };
  const Term at = place(0, 2, 0) * size_as(c.b, DType::kI64, padded[1]) + place(1, 3, 1);
  const sym::Expr n = count(grid), rows = c.b.simplify(x.dim(0) * channels), plane = padded[0] * padded[1];
  const Term zeros = filled(c.b, {rows, plane}, x.dtype(), 0);
  const Term sums =
      scatter_elements(zeros, expand(reshape(at, {1, n}), {rows, n}), reshape(x, {rows, n}), 1, "add");
  Term y = reshape(sums, {x.dim(0), channels, padded[0], padded[1]});
  y = slice(slice(y, 2, padding[0], image[0]), 3, padding[1], image[1]);
  return {unbatched(y, added)};
}

template <bool shuffle>
Results pixel_shuffle(Context& c) {
  const Term x = c.in("self");
  const int64_t r = c.integer(shuffle ? "upscale_factor" : "downscale_factor"), rank = x.rank();
  const sym::Expr ch = x.dim(rank - 3), h = x.dim(rank - 2), w = x.dim(rank - 1);
  const sym::Expr lead = count(x.shape(), 0, rank - 3);
  Shape out(x.shape().begin(), x.shape().end() - 3);
  Term y = x;
  if (shuffle) {
    const sym::Expr k = c.b.simplify(sym::floordiv(ch, r * r));
    y = permute(reshape(x, {lead, k, r, r, h, w}), {0, 1, 4, 2, 5, 3});
    out.insert(out.end(), {k, h * r, w * r});
  } else {
    const sym::Expr hh = c.b.simplify(sym::floordiv(h, r)), ww = c.b.simplify(sym::floordiv(w, r));
    y = permute(reshape(x, {lead, ch, hh, r, ww, r}), {0, 1, 3, 5, 2, 4});
    out.insert(out.end(), {ch * r * r, hh, ww});
  }
  return {reshape(y, out)};
}
// Puts elements at the places in the flattened spatial dims that max_pool gave.
template <int64_t spatial>
Results max_unpool(Context& c) {
  const Term x = c.in("self"), places = c.in("indices");
  const int64_t rank = x.rank();
  const Shape sizes = c.sizes("output_size");
  if (rank < spatial + 1 || sizes.size() != spatial)
    c.does_not_fit("max_unpool takes [..., channels, spatial...]");
  const sym::Expr lead = count(x.shape(), 0, rank - spatial), from = count(x.shape(), rank - spatial, rank);
  Shape out(x.shape().begin(), x.shape().end() - spatial);
  out.insert(out.end(), sizes.begin(), sizes.end());
  const Term zeros = filled(c.b, {lead, count(sizes)}, x.dtype(), 0);
  return {reshape(scatter_elements(zeros, reshape(places, {lead, from}), reshape(x, {lead, from}), 1, "none",
                                   Negative::kError),
                  out)};
}
// What flows to the argument of max_pool2d: to the place of each maximum, in the flattened plane.
Results max_pool2d_backward(Context& c) {
  const Term g = c.in("grad_output"), x = c.in("self"), places = c.in("indices");
  const int64_t lead = x.rank() - 2;
  const auto planes = [&](Term t) {
    return reshape(t, {count(t.shape(), 0, lead), count(t.shape(), lead, t.rank())});
  };
  const Term zeros = filled(c.b, planes(x).shape(), widen(g).dtype(), 0);
  const Term sums = scatter_elements(zeros, planes(places), planes(widen(g)), 1, "add", Negative::kError);
  return {cast(reshape(sums, x.shape()), g.dtype(), false)};
}
Results channel_shuffle(Context& c) {
  const Term x = c.in("self");
  const int64_t groups = c.integer("groups");
  Shape apart = x.shape();
  apart[1] = groups;
  apart.insert(apart.begin() + 2, c.b.simplify(sym::floordiv(x.dim(1), groups)));
  return {reshape(transpose(reshape(x, apart), 1, 2), x.shape())};
}

constexpr Row kRows[] = {
    {"_adaptive_avg_pool2d", adaptive_avg_pool<2>},
    {"_adaptive_avg_pool3d", adaptive_avg_pool<3>},
    {"adaptive_avg_pool1d", adaptive_avg_pool<1>},
    {"adaptive_avg_pool2d", adaptive_avg_pool<2>},
    {"adaptive_avg_pool3d", adaptive_avg_pool<3>},
    {"adaptive_max_pool1d", adaptive_max_pool<1>},
    {"adaptive_max_pool2d", adaptive_max_pool<2>},
    {"adaptive_max_pool3d", adaptive_max_pool<3>},
    {"avg_pool1d", avg_pool<1>},
    {"avg_pool2d", avg_pool<2>},
    {"avg_pool3d", avg_pool<3>},
    {"channel_shuffle", channel_shuffle},
    {"col2im", col2im},
    {"fractional_max_pool2d", fractional_max_pool<2>},
    {"fractional_max_pool3d", fractional_max_pool<3>},
    {"im2col", im2col},
    {"max_pool1d", max_pool<1, false>},
    {"max_pool1d_with_indices", max_pool<1, true>},
    {"max_pool2d", max_pool<2, false>},
    {"max_pool2d_with_indices", max_pool<2, true>},
    {"max_pool2d_with_indices_backward", max_pool2d_backward},
    {"max_pool3d", max_pool<3, false>},
    {"max_pool3d_with_indices", max_pool<3, true>},
    {"max_unpool2d", max_unpool<2>},
    {"max_unpool3d", max_unpool<3>},
    {"native_channel_shuffle", channel_shuffle},
    {"pixel_shuffle", pixel_shuffle<true>},
    {"pixel_unshuffle", pixel_shuffle<false>},
};

}  // namespace

std::span<const Row> pooling_rows() { return kRows; }

}  // namespace stridec::aten
