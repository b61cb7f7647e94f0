// Gather and scatter at indices that are tensor data. An index out of range fails the run with an error
// message that names the node. Negative indices count from the end, unless the attribute `wrap` is 0.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

// Constants with more elements than this are checked at run time only.
constexpr size_t kMostScanned = size_t{1} << 24;

void expect_indices(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.inputs[1]);
  if (!is_integer(dtype))
    does_not_fit(cat(graph::name(node.kind), ": indices are integers, not ", name(dtype)));
}

// Every step-th index from `first` on, if known. For a constant, only the smallest and the largest of them.
Elements known_indices(Builder& b, const Node& node, size_t first, size_t step) {
  const graph::Value& indices = b.graph()[node.inputs[1]];
  const size_t width = static_cast<size_t>(byte_size(indices.type.dtype));
  Elements out;
  const graph::Data* const data = indices.known_data();
  if (data && data->size > first * width && data->size / width <= kMostScanned) {
    const auto at = [&](size_t i) { return read_integer(indices.type.dtype, data->bytes + i * width); };
    int64_t least = at(first), largest = least;
    for (size_t i = first; i < data->size / width; i += step) {
      least = std::min(least, at(i));
      largest = std::max(largest, at(i));
    }
    out.push_back(least);
    if (largest != least) out.push_back(largest);
  } else if (const auto known = b.known(node.inputs[1])) {
    for (size_t i = first; i < known->size(); i += step) out.push_back((*known)[i]);
  }
  return out;
}

// Whether a negative index counts from the end.
bool wraps(const Node& node, DType index) {
  return is_signed(index) && node.attributes.integer_or("wrap", 1) != 0;
}

// What is said of an index outside its dim: {0} is the index, {1} the dim's size. The attribute `sentence`
// replaces the usual one.
std::string sentence_of(const Node& node) {
  return node.attributes.text_or("sentence",
                                 cat(graph::name(node.kind), ": index {0} is outside a dim of size {1}"));
}

// Checks that the known indices are within a dim of this size; adds guards for what is not known.
void expect_inside(Builder& b, const Node& node, sym::Expr size, size_t first = 0, size_t step = 1) {
  const sym::Expr least = wraps(node, b.dtype(node.inputs[1])) ? -size : sym::Expr(0);
  for (sym::Expr index : known_indices(b, node, first, step))
    b.require(sym::logical_and(sym::ge(index, least), sym::lt(index, size)), sentence_of(node),
              {index, size});
}

sym::Expr bind_index(loop::NestBuilder& n, const Node& node, loop::Value value, sym::Expr extent) {
  loop::Bind bind;
  bind.wrap_negative = wraps(node, value.dtype());
  bind.mode = loop::Bind::OutOfRange::kError;
  bind.sentence = cat(Lowering::origin_prefix(node), sentence_of(node));
  return n.bind(value, extent, std::move(bind));
}

Shape part(const Shape& shape, size_t from, size_t to) {
  return Shape(shape.begin() + static_cast<std::ptrdiff_t>(from),
               shape.begin() + static_cast<std::ptrdiff_t>(to));
}
Shape part(const Shape& shape, size_t from) { return part(shape, from, shape.size()); }

void append(Shape& to, const Shape& more) { to.insert(to.end(), more.begin(), more.end()); }

// ---- gather ----------------------------------------------------------------------------------------------

// Maps a known index to [0, size); a guard elsewhere checks its range.
sym::Expr resolve_index(sym::Expr index, sym::Expr size, const sym::Facts& facts) {
  if (facts.holds(sym::ge(index, 0))) return index;
  if (facts.holds(sym::lt(index, 0))) return index + size;
  return sym::select(sym::lt(index, 0), index + size, index);
}

Inferred gather_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  expect_indices(b, node);
  const Shape &data = b.shape(node.inputs[0]), &indices = b.shape(node.inputs[1]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const size_t batch = static_cast<size_t>(node.attributes.integer_or("batch_dims", 0));
  if (dim >= data.size()) does_not_fit(cat("gather: dim ", dim, " of ", to_string(data)));
  STRIDEC_CHECK(batch <= dim && batch <= indices.size());
  for (size_t i = 0; i < batch; ++i)
    expect_equal(b, data[i], indices[i], cat("gather: batch dim ", i, " is {0} and {1}"));
  Shape shape = part(data, 0, dim);
  append(shape, part(indices, batch));
  append(shape, part(data, dim + 1));
  expect_inside(b, node, data[dim]);
  const auto index_elements = b.known(node.inputs[1]);
  std::optional<Elements> elements;
  if (index_elements) {
    const auto known = b.known(node.inputs[0]);
    const auto sizes = constant_shape(data);
    const auto index_sizes = constant_shape(indices);
    if (known && sizes && index_sizes)
      elements = map_elements(shape, [&](const Coordinates& at) -> std::optional<sym::Expr> {
        const auto start = at.begin() + static_cast<std::ptrdiff_t>(dim);
        const auto end = start + static_cast<std::ptrdiff_t>(indices.size() - batch);
        Coordinates where(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(batch));
        where.insert(where.end(), start, end);
        const auto given = element_at(*index_elements, where, *index_sizes);
        const auto index = given ? sym::as_const(*given) : std::nullopt;
        if (!index) return std::nullopt;
        Coordinates source(at.begin(), start);
        source.push_back(*index < 0 ? *index + (*sizes)[dim] : *index);
        source.insert(source.end(), end, at.end());
        return element_at(*known, source, *sizes);
      });
  }
  return {{{b.dtype(node.inputs[0]), std::move(shape)}}, {std::move(elements)}};
}

std::optional<Elements> known_of(const Lowering& l, ValueId id) {
  if (auto scalar = l.constant_scalar(id)) return Elements{scalar->i};
  return l.known(id);
}

void gather_lower(Lowering& l, const Node& node) {
  const loop::View data = l.view(node.inputs[0]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const size_t batch = static_cast<size_t>(node.attributes.integer_or("batch_dims", 0));
  const size_t index_rank = l.type(node.inputs[1]).shape.size();
  const Shape& shape = l.type(node.outputs[0]).shape;
  // A gather at one known index is a slice.
  if (const auto known = known_of(l, node.inputs[1]); known && known->size() == 1 && batch == 0) {
    const sym::Expr index = resolve_index((*known)[0], data.shape[dim], l.facts());
    const loop::View row =
        loop::drop_dim(loop::slice(data, static_cast<int>(dim), index, 1, 1), static_cast<int>(dim));
    l.alias(node.outputs[0], loop::reshape(row, shape, l.facts()));
    return;
  }
  const loop::View indices = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("gather");
  const auto at = n.dims(to.shape);
  const auto split = at.begin() + static_cast<std::ptrdiff_t>(dim);
  const auto rest = split + static_cast<std::ptrdiff_t>(index_rank - batch);
  std::vector<sym::Expr> where(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(batch));
  where.insert(where.end(), split, rest);
  const sym::Expr index = bind_index(n, node, n.load(indices, where), data.shape[dim]);
  std::vector<sym::Expr> source(at.begin(), split);
  source.push_back(index);
  source.insert(source.end(), rest, at.end());
  n.store(to, at, n.load(data, source));
  n.finish(&l.steps());
}

// Index tuples [at..., batch + more] whose first elements are the batch coordinates of their own position.
Term with_batch(Term indices, size_t batch) {
  Builder& b = indices.builder();
  Shape lead = indices.shape();
  lead.back() = 1;
  std::vector<Term> parts;
  for (size_t d = 0; d < batch; ++d)
    parts.push_back(index_along(b, lead, static_cast<int64_t>(d), indices.dtype()));
  parts.push_back(indices);
  return parts.size() == 1 ? indices : concat(parts, indices.rank() - 1);
}

Term scatter_sum(Builder& b, const Shape& shape, Term indices, Term updates) {
  return {b, b.add1(OpKind::kScatterNd, {filled(b, shape, updates.dtype(), 0), indices, updates},
                    {{"reduction", std::string("add")}})};
}

// x of the shape of gather's indices, for every element of its results.
Term for_results(Term x, int64_t dim, int64_t rank) {
  Dims ones;
  for (int64_t d = 0; d < rank; ++d)
    if (d < dim || d >= dim + x.rank()) ones.push_back(d);
  return unsqueeze(x, ones);
}

// What PyTorch's embeddings say of the gradient, for gathers without batch dims: `no_gradient_at`: the row
// that gets none; `shared_gradient`: the results of one row share its gradient equally.
Term embedding_gradient(Builder& b, const Node& node, Term indices, Term g) {
  const int64_t dim = node.attributes.integer("dim");
  if (node.attributes.find("no_gradient_at")) {
    const Term skipped = size_as(b, indices.dtype(), node.attributes.expr("no_gradient_at"));
    g = select(for_results(equal(indices, skipped), dim, g.rank()), 0, g);
  }
  if (node.attributes.integer_or("shared_gradient", 0) != 0) {
    const Term ones = filled(b, indices.shape(), g.dtype(), 1);
    const Shape rows{b.shape(node.inputs[0])[static_cast<size_t>(dim)]};
    const Term counts = scatter_sum(b, rows, unsqueeze(indices, {indices.rank()}), ones);
    g = g / for_results(gather(counts, indices, 0), dim, g.rank());
  }
  return g;
}

// Adds every element to the position that it was gathered from. If the gathered dim follows batch dims,
// positions are tuples.
Ids gather_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Shape& data = b.shape(node.inputs[0]);
  const Term indices(b, node.inputs[1]), g = embedding_gradient(b, node, indices, {b, outputs[0]});
  const int64_t dim = node.attributes.integer("dim"), batch = node.attributes.integer_or("batch_dims", 0),
                index = indices.rank() - batch, rank = static_cast<int64_t>(data.size());
  Dims to_front, back(data.size()), updates_order;
  for (int64_t d = 0; d < batch; ++d) to_front.push_back(d), updates_order.push_back(d);
  to_front.push_back(dim);
  for (int64_t i = 0; i < index; ++i) updates_order.push_back(dim + i);
  for (int64_t d = batch; d < rank; ++d) {
    if (d == dim) continue;
    to_front.push_back(d);
    updates_order.push_back(d < dim ? d : d - 1 + index);
  }
  Shape shape;
  for (size_t i = 0; i < to_front.size(); ++i) {
    shape.push_back(data[static_cast<size_t>(to_front[i])]);
    back[static_cast<size_t>(to_front[i])] = static_cast<int64_t>(i);
  }
  const Term tuples = with_batch(unsqueeze(indices, {indices.rank()}), static_cast<size_t>(batch));
  return {permute(scatter_sum(b, shape, tuples, permute(g, updates_order)), back)};
}

// ---- gather_elements, scatter_elements -------------------------------------------------------------------

// In every dim but `dim`, indices may be shorter than the data.
void expect_cover(Builder& b, const Node& node, const Shape& data, const Shape& indices, size_t dim) {
  if (data.size() != indices.size() || dim >= data.size())
    does_not_fit(cat(graph::name(node.kind), ": data ", to_string(data), " and indices ", to_string(indices),
                     " have one rank and dim ", dim, " is one of theirs"));
  for (size_t d = 0; d < data.size(); ++d)
    if (d != dim && !(data[d] == indices[d]))
      b.require(sym::le(indices[d], data[d]),
                cat(graph::name(node.kind), ": dim ", d, " of the indices is {0}, of the data {1}"),
                {indices[d], data[d]});
}

Inferred gather_elements_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  expect_indices(b, node);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  expect_cover(b, node, b.shape(node.inputs[0]), b.shape(node.inputs[1]), dim);
  expect_inside(b, node, b.shape(node.inputs[0])[dim]);
  return {{{b.dtype(node.inputs[0]), b.shape(node.inputs[1])}}, {}};
}

void gather_elements_lower(Lowering& l, const Node& node) {
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const loop::View data = l.view(node.inputs[0]), indices = l.view(node.inputs[1]),
                   to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("gather_elements");
  const auto at = n.dims(to.shape);
  std::vector<sym::Expr> source = at;
  source[dim] = bind_index(n, node, n.load(indices, at), data.shape[dim]);
  n.store(to, at, n.load(data, source));
  n.finish(&l.steps());
}

std::optional<loop::Combine> reduction_of(const Node& node) {
  const std::string reduction = node.attributes.text_or("reduction", "none");
  if (reduction == "add") return loop::Combine::kSum;
  if (reduction == "mul") return loop::Combine::kProd;
  if (reduction == "max") return loop::Combine::kMax;
  if (reduction == "min") return loop::Combine::kMin;
  STRIDEC_CHECK(reduction == "none", reduction);
  return std::nullopt;
}

void put(loop::NestBuilder& n, const Node& node, const loop::View& to, const std::vector<sym::Expr>& at,
         loop::Value value) {
  if (auto combine = reduction_of(node))
    n.store_update(to, at, value, *combine);
  else
    n.store(to, at, value);
}

void expect_updates(Builder& b, const Node& node) {
  expect_inputs(node, 3, 3);
  expect_indices(b, node);
  expect_same_dtype(b, node, 0, 2);
  if (reduction_of(node) && is_bool(b.dtype(node.inputs[0])))
    does_not_fit(cat(graph::name(node.kind), ": bools are not added or compared"));
}

Inferred scatter_elements_shape(Builder& b, const Node& node) {
  expect_updates(b, node);
  const Shape &indices = b.shape(node.inputs[1]), &updates = b.shape(node.inputs[2]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  expect_cover(b, node, b.shape(node.inputs[0]), indices, dim);
  expect_inside(b, node, b.shape(node.inputs[0])[dim]);
  if (updates.size() != indices.size())
    does_not_fit(cat("scatter_elements: indices ", to_string(indices), " and updates ", to_string(updates),
                     " differ in rank"));
  for (size_t d = 0; d < indices.size(); ++d)
    expect_equal(b, indices[d], updates[d],
                 cat("scatter_elements: dim ", d, " of the indices is {0}, of the updates {1}"));
  return {{b.type(node.inputs[0])}, {}};
}

void scatter_elements_lower(Lowering& l, const Node& node) {
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const loop::View indices = l.view(node.inputs[1]), updates = l.view(node.inputs[2]),
                   to = l.changed(node.inputs[0], node.outputs[0], "scatter_copy");
  loop::NestBuilder n = l.nest("scatter_elements");
  const auto at = n.dims(indices.shape);
  std::vector<sym::Expr> target = at;
  target[dim] = bind_index(n, node, n.load(indices, at), to.shape[dim]);
  put(n, node, to, target, n.load(updates, at));
  n.finish(&l.steps());
}

// Whether the indices choose one element of each row along `dim`.
bool picks_one(const Builder& b, const graph::Shape& indices, const graph::Shape& data, int64_t dim) {
  for (size_t d = 0; d < data.size(); ++d) {
    const sym::Expr size = static_cast<int64_t>(d) == dim ? sym::Expr(1) : data[d];
    if (indices[d] != size && !b.holds(sym::eq(indices[d], size))) return false;
  }
  return true;
}

Ids gather_elements_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Type data = b.type(node.inputs[0]);
  const int64_t dim = node.attributes.integer("dim");
  const Term index(b, node.inputs[1]), g(b, outputs[0]);
  if (picks_one(b, index.shape(), data.shape, dim)) {  // a comparison, which fuses, in place of a scatter
    const sym::Expr size = data.shape[static_cast<size_t>(dim)];
    const Term at = select(less(index, 0), index + size_as(b, index.dtype(), size), index);
    graph::Shape line(data.shape.size(), 1);
    line[static_cast<size_t>(dim)] = size;
    return {select(equal(index_along(b, line, dim, index.dtype()), at), g, 0.0)};
  }
  return {b.add1(OpKind::kScatterElements, {filled(b, data.shape, data.dtype, 0), node.inputs[1], outputs[0]},
                 {{"dim", node.attributes.integer("dim")}, {"reduction", std::string("add")}})};
}

// The elements of a result of the shape of `scatter`'s data that its updates go to.
Term at_updates(const Node& scatter, Term x, ValueId indices) {
  const Term at(x.builder(), indices);
  return scatter.kind == OpKind::kScatterElements ? gather_elements(x, at, scatter.attributes.integer("dim"))
                                                  : gather_nd(x, at);
}

Term scattered(const Node& scatter, Term data, ValueId indices, Term updates, const char* reduction) {
  const Term at(data.builder(), indices);
  return scatter.kind == OpKind::kScatterElements
             ? scatter_elements(data, at, updates, scatter.attributes.integer("dim"), reduction)
             : scatter_nd(data, at, updates, reduction);
}

// The product of all other factors of an element is y / factor, or the product of the factors that are not 0
// if the factor is the only 0.
Ids scatter_product_gradient(Builder& b, const Node& node, Term g) {
  const ValueId at = node.inputs[1];
  const Term data(b, node.inputs[0]), updates(b, node.inputs[2]);
  const auto is_zero = [](Term x) { return cast(equal(x, 0), x.dtype()); };
  const auto not_zero = [](Term x) { return select(equal(x, 0), 1, x); };
  const Term zeros = scattered(node, is_zero(data), at, is_zero(updates), "add"),
             rest = scattered(node, not_zero(data), at, not_zero(updates), "mul");
  const auto of = [&](Term factor, Term zeros, Term rest, Term g) {
    const Term others = select(equal(factor, 0), rest, rest / not_zero(factor));
    return select(equal(zeros, is_zero(factor)), g * others, 0);
  };
  return {of(data, zeros, rest, g),
          {},
          of(updates, at_updates(node, zeros, at), at_updates(node, rest, at), at_updates(node, g, at))};
}

// All candidates that are equal to the result share its gradient.
Ids scatter_extremum_gradient(Builder& b, const Node& node, Term g) {
  const ValueId at = node.inputs[1];
  const Term data(b, node.inputs[0]), updates(b, node.inputs[2]), y(b, node.outputs[0]);
  const Term kept = cast(equal(data, y), y.dtype()),
             taken = cast(equal(updates, at_updates(node, y, at)), y.dtype());
  const Term each = g / maximum(scattered(node, kept, at, taken, "add"), 1);
  return {kept * each, {}, taken * at_updates(node, each, at)};
}

// none: overwritten elements get no gradient. Of several updates of one element only the last takes effect,
// but all get its gradient.
Ids scatter_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term g(b, outputs[0]);
  const std::string reduction = node.attributes.text_or("reduction", "none");
  if (reduction == "mul") return scatter_product_gradient(b, node, g);
  if (reduction == "max" || reduction == "min") return scatter_extremum_gradient(b, node, g);
  const Term updates = at_updates(node, g, node.inputs[1]);
  if (reduction == "add") return {g, {}, updates};
  const Type& type = b.type(node.inputs[2]);
  return {scattered(node, g, node.inputs[1], filled(b, type.shape, type.dtype, 0), "none"), {}, updates};
}

// ---- gather_nd, scatter_nd -------------------------------------------------------------------------------

// Number of leading data dims that an index tuple addresses: the size of the indices' last dim. Checks the
// indices as far as they are known.
size_t tuple_size(Builder& b, const Node& node, size_t batch) {
  const Shape &data = b.shape(node.inputs[0]), &indices = b.shape(node.inputs[1]);
  if (indices.empty()) does_not_fit(cat(graph::name(node.kind), ": the indices are a scalar"));
  const auto size = sym::as_const(indices.back());
  if (!size)
    does_not_fit(cat(graph::name(node.kind), ": the last dim of the indices ", to_string(indices),
                     " is not a number"));
  if (*size < 0 || batch + static_cast<size_t>(*size) > data.size())
    does_not_fit(cat(graph::name(node.kind), ": index tuples of ", *size, " for data ", to_string(data)));
  for (size_t i = 0; i < static_cast<size_t>(*size); ++i)
    expect_inside(b, node, data[batch + i], i, static_cast<size_t>(*size));
  return static_cast<size_t>(*size);
}

std::vector<sym::Expr> bind_tuple(loop::NestBuilder& n, const Node& node, const loop::View& indices,
                                  std::vector<sym::Expr> at, const Shape& extents) {
  std::vector<sym::Expr> out;
  at.push_back(0);
  for (size_t i = 0; i < extents.size(); ++i) {
    at.back() = static_cast<int64_t>(i);
    out.push_back(bind_index(n, node, n.load(indices, at), extents[i]));
  }
  return out;
}

Inferred gather_nd_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  expect_indices(b, node);
  const size_t batch = static_cast<size_t>(node.attributes.integer_or("batch_dims", 0));
  const Shape &data = b.shape(node.inputs[0]), &indices = b.shape(node.inputs[1]);
  const size_t tuple = tuple_size(b, node, batch);
  if (batch >= indices.size())
    does_not_fit(cat("gather_nd: ", batch, " batch dims of indices ", to_string(indices)));
  for (size_t i = 0; i < batch; ++i)
    expect_equal(b, data[i], indices[i], cat("gather_nd: batch dim ", i, " is {0} and {1}"));
  Shape shape = part(indices, 0, indices.size() - 1);
  append(shape, part(data, batch + tuple));
  return {{{b.dtype(node.inputs[0]), std::move(shape)}}, {}};
}

void gather_nd_lower(Lowering& l, const Node& node) {
  const size_t batch = static_cast<size_t>(node.attributes.integer_or("batch_dims", 0));
  const loop::View data = l.view(node.inputs[0]), indices = l.view(node.inputs[1]),
                   to = l.define(node.outputs[0]);
  const size_t tuple = static_cast<size_t>(indices.shape.back().value());
  loop::NestBuilder n = l.nest("gather_nd");
  const auto at = n.dims(to.shape);
  const auto split = at.begin() + static_cast<std::ptrdiff_t>(indices.shape.size() - 1);
  std::vector<sym::Expr> source(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(batch));
  append(source, bind_tuple(n, node, indices, {at.begin(), split}, part(data.shape, batch, batch + tuple)));
  source.insert(source.end(), split, at.end());
  n.store(to, at, n.load(data, source));
  n.finish(&l.steps());
}

Ids gather_nd_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const auto batch = static_cast<size_t>(node.attributes.integer_or("batch_dims", 0));
  return {scatter_sum(b, b.shape(node.inputs[0]), with_batch({b, node.inputs[1]}, batch), {b, outputs[0]})};
}

Inferred scatter_nd_shape(Builder& b, const Node& node) {
  expect_updates(b, node);
  const Shape &data = b.shape(node.inputs[0]), &indices = b.shape(node.inputs[1]),
              &updates = b.shape(node.inputs[2]);
  Shape expected = part(indices, 0, indices.size() - 1);
  append(expected, part(data, tuple_size(b, node, 0)));
  if (expected.size() != updates.size())
    does_not_fit(cat("scatter_nd: updates are ", to_string(updates), ", not ", to_string(expected)));
  for (size_t d = 0; d < expected.size(); ++d)
    expect_equal(b, updates[d], expected[d], cat("scatter_nd: dim ", d, " of the updates is {0}, not {1}"));
  return {{b.type(node.inputs[0])}, {}};
}

void scatter_nd_lower(Lowering& l, const Node& node) {
  const loop::View indices = l.view(node.inputs[1]), updates = l.view(node.inputs[2]),
                   to = l.changed(node.inputs[0], node.outputs[0], "scatter_copy");
  const size_t tuple = static_cast<size_t>(indices.shape.back().value());
  loop::NestBuilder n = l.nest("scatter_nd");
  const auto at = n.dims(updates.shape);
  const auto split = at.begin() + static_cast<std::ptrdiff_t>(indices.shape.size() - 1);
  std::vector<sym::Expr> target = bind_tuple(n, node, indices, {at.begin(), split}, part(to.shape, 0, tuple));
  target.insert(target.end(), split, at.end());
  put(n, node, to, target, n.load(updates, at));
  n.finish(&l.steps());
}

}  // namespace

constexpr const char* kScatterFormula =
    "none: data: g with 0 at indices, updates: g[indices]; add: data: g, updates: g[indices]; "
    "mul: g times the other factors; max, min: g / count where equal to y";
constexpr const char* kScatterNote =
    "none: of several updates of one element each gets g; max, min: equal candidates share g";

const OpDef def_kGather{gather_shape, gather_lower,
                        Gradient::by(gather_gradient, "data: scatter_nd(0, indices, g, add)")};
const OpDef def_kGatherElements{
    gather_elements_shape, gather_elements_lower,
    Gradient::by(
        gather_elements_gradient,
        "data: scatter_elements(0, indices, g, add); of one index a row: g where the place is the index")};
const OpDef def_kGatherNd{gather_nd_shape, gather_nd_lower,
                          Gradient::by(gather_nd_gradient, "data: scatter_nd(0, indices, g, add)")};
const OpDef def_kScatterElements{scatter_elements_shape, scatter_elements_lower,
                                 Gradient::by(scatter_gradient, kScatterFormula, kScatterNote)};
const OpDef def_kScatterNd{scatter_nd_shape, scatter_nd_lower,
                           Gradient::by(scatter_gradient, kScatterFormula, kScatterNote)};

}  // namespace stridec::ops
