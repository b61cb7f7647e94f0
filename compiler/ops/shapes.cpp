#include "compiler/ops/shapes.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::ops {

namespace {

// Whether y == 1 implies x == 1.
bool follows_one(Builder& b, sym::Expr y, sym::Expr x) {
  if (b.prove(sym::eq(y, 1)) == sym::Answer::kNo) return true;
  if (b.known_facts().with(sym::eq(y, 1)).holds(sym::eq(x, 1))) return true;
  if (y.op() != sym::Op::kMin) return false;
  // min(x, 512) is 1 only if x is
  bool contains = false;
  for (sym::Expr arg : y.args()) {
    if (arg == x)
      contains = true;
    else if (!b.holds(sym::ge(arg, 2)))
      return false;
  }
  return contains;
}

sym::Expr shorter(sym::Expr x, sym::Expr y) { return y.size() < x.size() ? y : x; }

sym::Expr broadcast_dim(Builder& b, sym::Expr x, sym::Expr y, const std::string& what) {
  if (x == y || y.is_const(1)) return x;
  if (x.is_const(1)) return y;
  const sym::Expr equal = sym::eq(x, y), one_x = sym::eq(x, 1), one_y = sym::eq(y, 1);
  if (b.holds(equal)) return shorter(x, y);
  if (b.holds(one_y)) return x;
  if (b.holds(one_x)) return y;
  const bool x_follows = follows_one(b, x, y), y_follows = follows_one(b, y, x);
  const std::string sentence =
      what + ": dims {0} and {1} do not broadcast: they must be equal, or one of them 1";
  if (x_follows && y_follows) {
    b.require(equal, sentence, {x, y});
    return shorter(x, y);
  }
  b.require(sym::logical_or(equal, sym::logical_or(one_x, one_y)), sentence, {x, y});
  // A dim that is 1 only when the other one is 1 is the result.
  if (x_follows) return x;
  if (y_follows) return y;
  return sym::select(one_x, y, x);
}

}  // namespace

Shape broadcast(Builder& builder, const std::vector<Shape>& shapes, const std::string& what) {
  Shape out;
  for (const Shape& shape : shapes) {
    if (shape.size() > out.size()) out.insert(out.begin(), shape.size() - out.size(), sym::Expr(1));
    for (size_t i = 0; i < shape.size(); ++i) {
      sym::Expr& dim = out[out.size() - shape.size() + i];
      dim = broadcast_dim(builder, dim, shape[i], what);
    }
  }
  return out;
}

int64_t normal_dim(int64_t dim, int rank, const std::string& what) {
  if (dim < -rank || dim >= rank)
    does_not_fit(cat(what, ": dim ", dim, " is out of range for a tensor of rank ", rank));
  return dim < 0 ? dim + rank : dim;
}

std::vector<int64_t> normal_dims(std::vector<int64_t> dims, int rank, const std::string& what) {
  for (int64_t& dim : dims) dim = normal_dim(dim, rank, what);
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end())
    does_not_fit(cat(what, ": a dim is named twice"));
  return dims;
}

size_t dim_attribute(const Node& node, const char* key, size_t rank) {
  const int64_t dim = node.attributes.integer(key);
  if (dim < 0 || dim >= static_cast<int64_t>(rank))
    does_not_fit(cat(graph::name(node.kind), ": dim ", dim, " of a tensor of rank ", rank));
  return static_cast<size_t>(dim);
}

sym::Expr element_count(const Shape& shape) { return sym::product(shape); }

std::string to_string(const Shape& shape) {
  // For error messages, where long expressions do not help the reader.
  constexpr uint32_t kLong = 12;  // nodes
  return cat("[",
             join(shape, ", ", [](sym::Expr dim) { return dim.size() > kLong ? "?" : sym::to_string(dim); }),
             "]");
}

void does_not_fit(const std::string& message) { fail(ErrorKind::kDoesNotFit, "does-not-fit", message); }

void expect_inputs(const Node& node, size_t low, size_t high) {
  STRIDEC_CHECK(node.inputs.size() >= low && node.inputs.size() <= high,
                cat(graph::name(node), " with ", node.inputs.size(), " inputs"));
  for (ValueId input : node.inputs)
    STRIDEC_CHECK(input.valid(), cat("an absent input of ", graph::name(node)));
}

void expect_same_dtype(Builder& builder, const Node& node, size_t a, size_t b) {
  const DType x = builder.dtype(node.inputs[a]), y = builder.dtype(node.inputs[b]);
  if (x != y)
    does_not_fit(
        cat(graph::name(node.kind), ": inputs ", a, " and ", b, " have dtypes ", name(x), " and ", name(y)));
}

void expect_equal(Builder& builder, sym::Expr a, sym::Expr b, const std::string& sentence) {
  if (a == b) return;
  builder.require(sym::eq(a, b), sentence, {a, b});
}

sym::Expr divided(Builder& builder, sym::Expr size, sym::Expr by, const std::string& what) {
  const sym::Expr part = builder.simplify(sym::floordiv(size, by));
  builder.require(sym::eq(part * by, size), cat("{0} ", what, " do not divide into {1}"), {size, by});
  return part;
}

std::optional<std::vector<int64_t>> constant_shape(const Shape& shape) {
  std::vector<int64_t> out;
  for (sym::Expr dim : shape) {
    auto size = sym::as_const(dim);
    if (!size) return std::nullopt;
    out.push_back(*size);
  }
  return out;
}

int64_t flat_index(const Coordinates& at, const std::vector<int64_t>& shape) {
  int64_t flat = 0;
  for (size_t i = 0; i < at.size(); ++i) flat = flat * shape[i] + at[i];
  return flat;
}

std::optional<sym::Expr> element_at(const Elements& elements, const Coordinates& at,
                                    const std::vector<int64_t>& shape) {
  for (size_t d = 0; d < at.size(); ++d)
    if (at[d] < 0 || at[d] >= shape[d]) return std::nullopt;
  return elements[static_cast<size_t>(flat_index(at, shape))];
}

std::optional<Elements> map_elements(
    const Shape& shape, const std::function<std::optional<sym::Expr>(const Coordinates& at)>& element) {
  const auto sizes = constant_shape(shape);
  if (!sizes) return std::nullopt;
  int64_t count = 1;
  for (int64_t size : *sizes) {
    if (size < 0 || (size > 0 && count > graph::kMaxElements / size)) return std::nullopt;
    count *= size;
  }
  Elements out;
  Coordinates at(sizes->size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    auto value = element(at);
    if (!value) return std::nullopt;
    out.push_back(*value);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < (*sizes)[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace stridec::ops
