// Operators that return views: the result shares the storage of their argument.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/slices.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

int64_t rank_of(Context& c, const Tensor& t) { return static_cast<int64_t>(shape_of(c.b, t).size()); }

// The value's own shape: with the dim of the parts of complex numbers.
Shape with_parts(const Tensor& t, Shape shape) {
  if (t.complex) shape.emplace_back(2);
  return shape;
}

Tensor reshape_view(const Tensor& t, const Shape& shape) {
  const Shape full = with_parts(t, shape);
  return view_of(
      t, [full](Term base) { return ops::reshape(base, full); },
      [](Term base, Term value) { return ops::reshape(value, base.shape()); });
}

// An integer type as wide as `like`.
DType integer_of(DType like, bool with_sign) {
  switch (byte_size(like)) {
    case 1: return with_sign ? DType::kI8 : DType::kU8;
    case 2: return with_sign ? DType::kI16 : DType::kU16;
    case 4: return with_sign ? DType::kI32 : DType::kU32;
    default: return with_sign ? DType::kI64 : DType::kU64;
  }
}

// Replaces -1 by what is left of the elements.
Shape inferred(Context& c, const Shape& old, Shape shape) {
  sym::Expr others = 1;
  std::optional<size_t> open;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!shape[d].is_const(-1)) {
      others = others * shape[d];
      continue;
    }
    if (open) c.does_not_fit("a shape has two sizes of -1");
    open = d;
  }
  if (open) {
    const sym::Expr total = ops::count(old);
    if (others.is_const(0)) c.does_not_fit("a size of -1 cannot be inferred when another is 0");
    shape[*open] = c.b.simplify(sym::floordiv(total, others));
  }
  for (sym::Expr& dim : shape) dim = c.b.simplify(dim);
  return shape;
}

// The bits of x as elements of a narrower type, the lowest first, in a last dim that is longer.
Term split_bits(Term x, DType to) {
  const int64_t bits = info(to).bits, parts = byte_size(x.dtype()) / byte_size(to);
  const Term whole = ops::bitcast(x, integer_of(x.dtype(), true));
  const auto mask = static_cast<double>((int64_t{1} << bits) - 1);
  std::vector<Term> all;
  for (int64_t i = 0; i < parts; ++i) {
    const Term part =
        ops::apply(OpKind::kBitAnd, ops::apply(OpKind::kShr, whole, static_cast<double>(i * bits)), mask);
    all.push_back(ops::unsqueeze(ops::cast(part, integer_of(to, false), false), {x.rank()}));
  }
  Shape shape = x.shape();
  shape.back() = x.builder().simplify(shape.back() * parts);
  return ops::bitcast(ops::reshape(ops::concat(all, x.rank()), shape), to);
}

// The reverse: elements of a wider type of as many neighbours as it is wider.
Term join_bits(Term x, DType to) {
  const int64_t bits = info(x.dtype()).bits, parts = byte_size(to) / byte_size(x.dtype());
  Shape shape = x.shape();
  shape.back() = x.builder().simplify(sym::floordiv(shape.back(), parts));
  const Shape whole = shape;
  shape.emplace_back(parts);
  const Term grouped = ops::reshape(ops::bitcast(x, integer_of(x.dtype(), false)), shape);
  std::optional<Term> all;
  for (int64_t i = 0; i < parts; ++i) {
    const Term part = ops::reshape(ops::slice(grouped, x.rank(), i, 1), whole);
    const Term placed =
        ops::apply(OpKind::kShl, ops::cast(part, integer_of(to, true), false), static_cast<double>(i * bits));
    all = all ? ops::apply(OpKind::kBitOr, *all, placed) : placed;
  }
  return ops::bitcast(*all, to);
}

Term with_bits(Term x, DType to) {
  if (byte_size(to) == byte_size(x.dtype())) return ops::bitcast(x, to);
  return byte_size(to) < byte_size(x.dtype()) ? split_bits(x, to) : join_bits(x, to);
}

Results view_as_dtype(Context& c) {
  const Tensor t = c.tensor("self");
  const Term x = c.in("self");
  const DType to = *c.dtype("dtype"), from = x.dtype();
  if (to == from) return {t};
  if (is_bool(to) || is_bool(from)) c.unsupported("a view of bools as another dtype, or the reverse");
  if (t.complex) c.unsupported("a view of complex numbers as another dtype");
  if (byte_size(to) != byte_size(from) && x.rank() == 0)
    c.does_not_fit("a view of a scalar as a dtype of another size");
  if (byte_size(to) > byte_size(from)) {
    const int64_t parts = byte_size(to) / byte_size(from);
    c.b.require(sym::eq(sym::mod(x.shape().back(), parts), 0),
                "a last dim of {0} is no whole number of wider elements", {x.shape().back()});
  }
  return {view_of(
      t, [to](Term base) { return with_bits(base, to); },
      [from](Term, Term value) { return with_bits(value, from); })};
}

Results view(Context& c) {
  if (c.names("dtype")) return view_as_dtype(c);
  const Tensor t = c.tensor("self");
  return {reshape_view(t, inferred(c, shape_of(c.b, t), c.sizes("size")))};
}

// A view where the strides allow, a copy otherwise.
Results maybe_view(Context& c, const Tensor& t, const Shape& shape) {
  if (is_viewable(c.b, t, shape)) return {reshape_view(t, shape)};
  Tensor copy = fresh(ops::reshape(read(c.b, t), with_parts(t, shape)));
  copy.complex = t.complex;
  return {copy};
}
Results reshape(Context& c) {
  const Tensor t = c.tensor("self");
  return maybe_view(c, t, inferred(c, shape_of(c.b, t), c.sizes(c.names("shape") ? "shape" : "size")));
}
Results shape_as(Context& c) { return maybe_view(c, c.tensor("self"), shape_of(c.b, c.tensor("other"))); }
Results flatten(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape old = shape_of(c.b, t);
  if (old.empty()) return {reshape_view(t, {1})};
  const int64_t from = c.dim("start_dim", std::ssize(old)), to = c.dim("end_dim", std::ssize(old));
  if (from > to) c.does_not_fit("start_dim is greater than end_dim");
  if (from == to) return {t};
  Shape shape(old.begin(), old.begin() + from);
  shape.push_back(ops::count(old, from, to + 1));
  shape.insert(shape.end(), old.begin() + to + 1, old.end());
  return maybe_view(c, t, shape);
}
Results ravel(Context& c) {
  const Tensor t = c.tensor("self");
  return maybe_view(c, t, {ops::count(shape_of(c.b, t))});
}
Results unflatten(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape old = shape_of(c.b, t);
  const int64_t dim = c.dim("dim", std::ssize(old));
  const Shape inner = inferred(c, {old[static_cast<size_t>(dim)]}, c.sizes("sizes"));
  Shape shape(old.begin(), old.begin() + dim);
  shape.insert(shape.end(), inner.begin(), inner.end());
  shape.insert(shape.end(), old.begin() + dim + 1, old.end());
  return {reshape_view(t, shape)};
}

Dims inverse(const Dims& order) {
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

Tensor permute_view(const Tensor& t, Dims order) {
  if (t.complex) order.push_back(std::ssize(order));
  const Dims back = inverse(order);
  return view_of(
      t, [order](Term base) { return ops::permute(base, order); },
      [back](Term, Term value) { return ops::permute(value, back); });
}
Results permute(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t rank = rank_of(c, t);
  const Dims order = c.listed_dims("dims", rank);
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i)) c.does_not_fit("dims is not a permutation");
  if (std::ssize(order) != rank) c.does_not_fit(cat(order.size(), " dims for a tensor of rank ", rank));
  return {permute_view(t, order)};
}
Tensor swapped(const Tensor& t, int64_t rank, int64_t x, int64_t y) {
  if (rank == 0) return t;
  Dims order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(x)], order[static_cast<size_t>(y)]);
  return permute_view(t, order);
}
Results transpose(Context& c) {
  const Tensor t = c.tensor("self");
  const bool numpy = c.names("axis0");
  const int64_t rank = rank_of(c, t);
  if (rank == 0) return {t};
  return {swapped(t, rank, c.dim(numpy ? "axis0" : "dim0", rank), c.dim(numpy ? "axis1" : "dim1", rank))};
}
Results t_row(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t rank = rank_of(c, t);
  if (rank > 2) c.does_not_fit("t takes at most two dims");
  return {rank < 2 ? t : swapped(t, 2, 0, 1)};
}
Results matrix_t(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t rank = rank_of(c, t);
  if (rank < 2) c.does_not_fit("a matrix must have two dims");
  return {swapped(t, rank, rank - 2, rank - 1)};
}
Results matrix_h(Context& c) {
  if (c.tensor("self").complex) c.unsupported("the conjugate transpose of complex numbers");
  return matrix_t(c);
}
Results numpy_t(Context& c) {
  const Tensor t = c.tensor("self");
  Dims order(static_cast<size_t>(rank_of(c, t)));
  std::iota(order.rbegin(), order.rend(), 0);
  return {permute_view(t, order)};
}
Results movedim(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t rank = rank_of(c, t);
  const Dims from = c.integers("source"), to = c.integers("destination");
  if (from.size() != to.size()) c.does_not_fit("source and destination differ in length");
  if (rank == 0) return {t};
  Dims order(static_cast<size_t>(rank), -1), rest;
  std::vector<bool> moved(static_cast<size_t>(rank));
  for (size_t i = 0; i < from.size(); ++i) {
    order[static_cast<size_t>(normal_dim(to[i], rank))] = normal_dim(from[i], rank);
    moved[static_cast<size_t>(normal_dim(from[i], rank))] = true;
  }
  for (int64_t d = 0; d < rank; ++d)
    if (!moved[static_cast<size_t>(d)]) rest.push_back(d);
  size_t next = 0;
  for (int64_t& d : order)
    if (d < 0) d = rest.at(next++);
  return {permute_view(t, order)};
}

Results unsqueeze(Context& c) {
  const Tensor t = c.tensor("self");
  Shape shape = shape_of(c.b, t);
  shape.insert(shape.begin() + c.dim("dim", std::ssize(shape) + 1), 1);
  return {reshape_view(t, shape)};
}
Results squeeze(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape old = shape_of(c.b, t);
  const bool all = !c.names("dim");
  const Dims dims = all ? Dims() : c.listed_dims("dim", std::ssize(old));
  Shape shape;
  for (size_t d = 0; d < old.size(); ++d) {
    const bool chosen = all || std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    // A symbolic size is taken not to be 1, as PyTorch's export does.
    if (!chosen || !c.b.holds(sym::eq(old[d], 1))) shape.push_back(old[d]);
  }
  return {reshape_view(t, shape)};
}

Results expanded(Context& c, const Tensor& t, Shape shape) {
  const Shape old = shape_of(c.b, t);
  if (shape.size() < old.size()) c.does_not_fit("expand to fewer dims");
  const size_t lead = shape.size() - old.size();
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d].is_const(-1)) {
      if (d < lead) c.does_not_fit("a new dim of size -1");
      shape[d] = old[d - lead];
    }
  const Shape full = with_parts(t, shape);
  return {view_of(t, [full](Term base) { return ops::expand(base, full); })};
}
Results expand(Context& c) { return expanded(c, c.tensor("self"), c.sizes("size")); }
Results expand_as(Context& c) { return expanded(c, c.tensor("self"), shape_of(c.b, c.tensor("other"))); }

std::optional<sym::Expr> bound(Context& c, const char* name) {
  return c.has(name) ? std::optional(c.size(name)) : std::nullopt;
}

Results select(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  if (shape.empty()) c.does_not_fit("select of a tensor without dims");
  const int64_t dim = c.dim("dim", std::ssize(shape));
  return {select_view(t, dim, python_index(c.b, shape[static_cast<size_t>(dim)], c.size("index")))};
}
Results slice(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  if (shape.empty()) c.does_not_fit("slice of a tensor without dims");
  const int64_t dim = c.dim("dim", std::ssize(shape)), step = c.integer("step");
  if (step < 1) c.does_not_fit("a slice's step must be positive");
  const Slice s =
      python_slice(c.b, shape[static_cast<size_t>(dim)], bound(c, "start"), bound(c, "end"), step);
  const bool whole = s.start.is_const(0) && s.extent == shape[static_cast<size_t>(dim)] && step == 1;
  return {whole ? t : slice_view(t, dim, s)};
}
Results narrow(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  const int64_t dim = c.dim("dim", std::ssize(shape));
  const sym::Expr size = shape[static_cast<size_t>(dim)], length = c.size("length");
  if (c.arg("start").is_tensor()) c.unsupported("narrow from a start that is a tensor");
  sym::Expr start = c.size("start");
  if (c.b.holds(sym::lt(start, 0))) start = start + size;
  c.b.require(sym::logical_and(sym::ge(start, 0), sym::le(start + length, size)),
              "narrow: {0} elements from {1} of a dim of size {2}", {length, start, size});
  return {slice_view(t, dim, {.start = start, .extent = length})};
}

Results parts(Context& c, const Tensor& t, int64_t dim, const Shape& sizes) {
  std::vector<Value> out;
  sym::Expr at = 0;
  for (sym::Expr size : sizes) {
    out.emplace_back(slice_view(t, dim, {.start = c.b.simplify(at), .extent = size}));
    at = at + size;
  }
  const sym::Expr total = shape_of(c.b, t)[static_cast<size_t>(dim)];
  c.b.require(sym::eq(at, total), "split into parts of {0} in all, but the dim has size {1}", {at, total});
  return {Value::list(std::move(out))};
}
// Parts of one size; the last may be smaller. The number of parts is known at compile time.
Results equal_parts(Context& c, const Tensor& t, int64_t dim, sym::Expr part) {
  const sym::Expr total = shape_of(c.b, t)[static_cast<size_t>(dim)];
  if (total.is_const(0)) return parts(c, t, dim, {0});
  const sym::Expr count = c.b.simplify(sym::ceildiv(total, part));
  if (!count.is_const() || count.value() > 10'000)
    c.unsupported("the number of parts must be known at compile time");
  Shape sizes(static_cast<size_t>(count.value()), part);
  sizes.back() = c.b.simplify(total - part * (count.value() - 1));
  return parts(c, t, dim, sizes);
}
Results split(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t dim = c.dim("dim", rank_of(c, t));
  if (c.names("split_sizes")) return parts(c, t, dim, c.sizes("split_sizes"));
  if (c.schema.overload == "sizes") return parts(c, t, dim, c.sizes("split_size"));
  return equal_parts(c, t, dim, c.size("split_size"));
}
Results chunk(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t dim = c.dim("dim", rank_of(c, t)), chunks = c.integer("chunks");
  if (chunks < 1) c.does_not_fit("the number of chunks must be positive");
  const sym::Expr size = shape_of(c.b, t)[static_cast<size_t>(dim)];
  if (!size.is_const()) {
    // Exactly `chunks` parts if the size is a multiple, as the trace had it.
    c.b.require(sym::eq(sym::mod(size, chunks), 0), "chunk: a dim of size {0} is not a multiple of {1}",
                {size, chunks});
    return parts(c, t, dim, Shape(static_cast<size_t>(chunks), c.b.simplify(sym::floordiv(size, chunks))));
  }
  return equal_parts(c, t, dim, std::max<int64_t>((size.value() + chunks - 1) / chunks, 1));
}
Results tensor_split(Context& c) {
  const Tensor t = c.tensor("self");
  const int64_t dim = c.dim("dim", rank_of(c, t));
  const sym::Expr size = shape_of(c.b, t)[static_cast<size_t>(dim)];
  std::vector<Value> out;
  if (c.names("sections")) {
    const int64_t n = c.integer("sections");
    if (!size.is_const() || n < 1) c.unsupported("tensor_split of a size that is not known at compile time");
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t part = size.value() / n + (i < size.value() % n);
      out.emplace_back(slice_view(t, dim, {.start = at, .extent = part}));
      at += part;
    }
    return {Value::list(std::move(out))};
  }
  if (!c.names("indices")) c.unsupported("tensor_split at places given by a tensor");
  std::optional<sym::Expr> from;
  for (sym::Expr to : c.sizes("indices")) {
    out.emplace_back(slice_view(t, dim, python_slice(c.b, size, from, to)));
    from = to;
  }
  out.emplace_back(slice_view(t, dim, python_slice(c.b, size, from, std::nullopt)));
  return {Value::list(std::move(out))};
}
Results unbind(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  const int64_t dim = c.dim("dim", std::ssize(shape));
  const sym::Expr size = shape[static_cast<size_t>(dim)];
  if (!size.is_const() || size.value() > 10'000)
    c.unsupported("the number of parts must be known at compile time");
  std::vector<Value> out;
  for (int64_t i = 0; i < size.value(); ++i) out.emplace_back(select_view(t, dim, i));
  return {Value::list(std::move(out))};
}

Results diagonal(Context& c) {
  const Tensor t = c.tensor(c.names("self") ? "self" : "A");
  const Shape shape = shape_of(c.b, t);
  const int64_t rank = std::ssize(shape), offset = c.integer("offset"), first = c.dim("dim1", rank),
                second = c.dim("dim2", rank);
  const sym::Expr n = shape[static_cast<size_t>(first)], m = shape[static_cast<size_t>(second)];
  const sym::Expr length =
      c.b.simplify(sym::max(0, offset >= 0 ? sym::min(n, m - offset) : sym::min(n + offset, m)));
  const sym::Expr start = offset >= 0 ? sym::Expr(offset) : m * -offset;
  return {view_of(t, [=](Term base) {  // the parts of complex numbers stay in the last dim
    Dims order;
    for (int64_t d = 0; d < rank; ++d)
      if (d != first && d != second) order.push_back(d);
    order.push_back(first);
    order.push_back(second);
    for (int64_t d = rank; d < base.rank(); ++d) order.push_back(d);
    const Term moved = ops::permute(base, order);
    Shape flat(moved.shape().begin(), moved.shape().begin() + rank - 2);
    flat.push_back(n * m);
    flat.insert(flat.end(), moved.shape().begin() + rank, moved.shape().end());
    Builder& b = base.builder();
    const Term at = ops::index_along(b, {length}, 0, DType::kI64) * ops::size_as(b, DType::kI64, m + 1) +
                    ops::size_as(b, DType::kI64, start);
    return ops::gather(ops::reshape(moved, flat), at, rank - 2);
  })};
}

Results unfold(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape shape = shape_of(c.b, t);
  if (shape.empty()) {  // one window of one element, or of none
    const int64_t size = c.integer("size");
    if (size < 0 || size > 1) c.does_not_fit(cat("unfold: windows of ", size, " of a scalar"));
    if (t.complex) c.unsupported("unfold of a complex scalar");
    return {view_of(t, [=](Term base) { return ops::slice(ops::reshape(base, {1}), 0, 0, size); })};
  }
  const int64_t dim = c.dim("dimension", std::ssize(shape)), size = c.integer("size"),
                step = c.integer("step");
  const sym::Expr n = shape[static_cast<size_t>(dim)];
  c.b.require(sym::ge(n, size), "unfold: windows of {1} in a dim of size {0}", {n, size});
  const sym::Expr windows = c.b.simplify(sym::floordiv(n - size, step) + 1);
  const bool complex = t.complex;
  return {view_of(t, [=](Term base) {
    Builder& b = base.builder();
    const Shape grid{windows, size};
    const Term at = ops::index_along(b, grid, 0, DType::kI64) * static_cast<double>(step) +
                    ops::index_along(b, grid, 1, DType::kI64);
    const Term all = ops::gather(base, at, dim);
    const int64_t rank = all.rank() - (complex ? 1 : 0);
    Dims order;
    for (int64_t d = 0; d < rank; ++d)
      if (d != dim + 1) order.push_back(d);
    order.push_back(dim + 1);
    if (complex) order.push_back(rank);
    return ops::permute(all, order);
  })};
}

// The first elements in the new shape. PyTorch leaves additional ones undefined; they are 0 here.
Results resize(Context& c) {
  const Tensor t = c.tensor("self");
  if (t.complex) c.unsupported("a resize of complex numbers");
  if (!is_contiguous(c.b, t)) c.unsupported("a resize of a tensor whose elements are in another order");
  const Shape shape = c.names("the_template") ? shape_of(c.b, c.tensor("the_template")) : c.sizes("size");
  const sym::Expr from = ops::count(shape_of(c.b, t)), to = ops::count(shape);
  const sym::Expr more = c.b.simplify(to - from);
  if (!more.is_const()) c.unsupported("a resize by a symbolic number of elements");
  if (more.value() > 0) {
    if (t.view) c.unsupported("a resize of a part of a tensor to more elements, which are those behind it");
    const Term x = ops::reshape(c.in("self"), {from});
    return {ops::reshape(ops::pad(x, {0}, {more}, 0), shape)};
  }
  return {view_of(
      t, [=](Term base) { return ops::reshape(ops::slice(ops::reshape(base, {from}), 0, 0, to), shape); })};
}

// Any strides over the storage.
Results as_strided(Context& c) {
  const Tensor t = c.tensor("self");
  const Shape sizes = c.sizes("size"), strides = c.sizes("stride");
  if (sizes.size() != strides.size()) c.does_not_fit("size and stride differ in length");
  if (t.complex) c.unsupported("as_strided of complex numbers");
  Tensor base;
  base.storage = t.storage;
  base.strides = t.storage->strides;
  if (t.view && read(c.b, t).dtype() != read(c.b, base).dtype()) c.unsupported("as_strided of another dtype");
  const auto order = memory_order(c.b, base);
  if (!order) c.unsupported("as_strided of a tensor with gaps or repeated elements");
  const bool row_major = std::is_sorted(order->begin(), order->end());
  const Tensor memory = row_major ? base : permute_view(base, *order);
  if (c.has("storage_offset") || !t.view) {
    const sym::Expr offset = c.has("storage_offset") ? c.size("storage_offset") : sym::Expr(0);
    return {strided_view(memory, sizes, strides,
                         [offset](Term of) { return ops::size_as(of.builder(), DType::kI64, offset); })};
  }
  // The offset of the view itself.
  const Dims back = inverse(*order);
  return {strided_view(memory, sizes, strides, [=](Term of) {
    Term places = numbered(of.builder(), of.shape());
    if (!row_major) places = ops::permute(places, back);
    return ops::reshape(first_number(t, places), {});
  })};
}

constexpr auto kRows = for_complex({
    {"_reshape_alias", reshape},
    {"_unsafe_view", view},
    {"adjoint", matrix_h},
    {"as_strided", as_strided},
    {"broadcast_to", expand},
    {"chunk", chunk},
    {"diagonal", diagonal},
    {"expand", expand},
    {"expand_as", expand_as},
    {"flatten", flatten},
    {"linalg_diagonal", diagonal},
    {"mH", matrix_h},
    {"mT", matrix_t},
    {"matrix_H", matrix_h},
    {"moveaxis", movedim},
    {"movedim", movedim},
    {"narrow", narrow},
    {"numpy_T", numpy_t},
    {"permute", permute},
    {"ravel", ravel},
    {"reshape", reshape},
    {"reshape_as", shape_as},
    {"resize", resize},
    {"resize_as", resize},
    {"select", select},
    {"slice", slice},
    {"split", split},
    {"split_with_sizes", split},
    {"squeeze", squeeze},
    {"swapaxes", transpose},
    {"swapdims", transpose},
    {"t", t_row},
    {"tensor_split", tensor_split},
    {"transpose", transpose},
    {"unbind", unbind},
    {"unflatten", unflatten},
    {"unfold", unfold},
    {"unsafe_chunk", chunk},
    {"unsafe_split", split},
    {"unsafe_split_with_sizes", split},
    {"unsqueeze", unsqueeze},
    {"view", view},
    {"view_as", shape_as},
});

}  // namespace

std::span<const Row> view_rows() { return kRows; }

}  // namespace stridec::aten
