#include "compiler/frontend/aten/storage.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

Term read_view(Builder& b, const Storage& storage, const View* view) {
  if (!view) return {b, storage.base};
  if (view->cached_version == storage.version) return {b, view->cached};
  const Term out = view->read(read_view(b, storage, view->parent.get()));
  view->cached = out.id();
  view->cached_version = storage.version;
  return out;
}

Term read_numbers(const View* view, Term numbers) {
  return view ? view->read(read_numbers(view->parent.get(), numbers)) : numbers;
}

// Numbers the elements of the base, reads the view of the numbers, and scatters the value to them.
Term scatter_through(const ReadFn& read, Term base, Term value) {
  Builder& b = base.builder();
  const sym::Expr total = ops::count(base.shape());
  const Term at = read(numbered(b, base.shape()));
  const sym::Expr count = ops::count(at.shape());
  const Term flat = ops::scatter_elements(ops::reshape(base, {total}), ops::reshape(at, {count}),
                                          ops::reshape(ops::expand(value, at.shape()), {count}), 0);
  return ops::reshape(flat, base.shape());
}

}  // namespace

Term numbered(Builder& b, const Shape& shape) {
  return ops::reshape(ops::index_along(b, {ops::count(shape)}, 0, DType::kI64), shape);
}

Tensor fresh(Term value) {
  Tensor out;
  out.storage = std::make_shared<Storage>(Storage{.base = value.id(), .version = 0, .strides = {}});
  return out;
}

Shape shape_of(Builder& b, const Tensor& tensor) {
  // A write leaves the shape, so a stale storage has it too.
  Shape out = read_view(b, *tensor.storage, tensor.view.get()).shape();
  if (tensor.complex) out.pop_back();
  return out;
}

Term read(Builder& b, const Tensor& tensor) {
  if (tensor.storage->stale)
    fail(ErrorKind::kUnsupported, "unsupported-alias",
         "a tensor that is read may be one that was written in place under another name, which data decide",
         "clone the tensor before it is written: x = x.clone()");
  return read_view(b, *tensor.storage, tensor.view.get());
}

void write(Builder& b, const Tensor& tensor, Term value) {
  Storage& storage = *tensor.storage;
  STRIDEC_CHECK(read(b, tensor).dtype() == value.dtype());
  for (const View* view = tensor.view.get(); view; view = view->parent.get()) {
    const Term base = read_view(b, storage, view->parent.get());
    value = view->write ? view->write(base, value) : scatter_through(view->read, base, value);
  }
  storage.base = value.id();
  ++storage.version;
  for (const auto& alias : storage.aliases)
    if (const auto other = alias.lock()) other->stale = true;
}

void add_alias(const std::shared_ptr<Storage>& a, const std::shared_ptr<Storage>& b) {
  if (a == b) return;
  a->aliases.push_back(b);
  b->aliases.push_back(a);
}

Tensor view_of(const Tensor& tensor, ReadFn read, WriteFn write) {
  Tensor out;
  out.storage = tensor.storage;
  out.complex = tensor.complex;
  auto view = std::make_shared<View>();
  view->parent = tensor.view;
  view->read = std::move(read);
  view->write = std::move(write);
  out.view = std::move(view);
  return out;
}

Term first_number(const Tensor& tensor, Term numbers) {
  Builder& b = numbers.builder();
  const Term at = read_numbers(tensor.view.get(), numbers);
  const sym::Expr count = ops::count(at.shape());
  Term flat = ops::reshape(at, {count});
  if (!b.holds(sym::ge(count, 1)))
    flat = ops::concat({flat, ops::filled(b, {sym::Expr(1)}, DType::kI64, 0)}, 0);
  return ops::slice(flat, 0, 0, 1);
}

bool is_contiguous(Builder& b, const Tensor& tensor) {
  if (!tensor.strides) return true;
  const Shape shape = shape_of(b, tensor);
  if (tensor.strides->size() != shape.size()) return false;
  sym::Expr expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (!shape[d].is_const(1) && !b.holds(sym::eq((*tensor.strides)[d], expected))) return false;
    expected = expected * shape[d];
  }
  return true;
}

std::optional<Dims> memory_order(Builder& b, const Tensor& tensor) {
  const Shape shape = shape_of(b, tensor);
  Dims order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (is_contiguous(b, tensor)) return order;
  const std::vector<sym::Expr>& strides = *tensor.strides;
  if (strides.size() != shape.size()) return std::nullopt;
  sym::Expr expected = 1;
  for (size_t left = order.size(); left > 0; --left) {
    const auto end = order.begin() + static_cast<ptrdiff_t>(left);
    const auto next = std::find_if(order.begin(), end, [&](int64_t d) {
      const auto dim = static_cast<size_t>(d);
      return shape[dim].is_const(1) || b.holds(sym::eq(strides[dim], expected));
    });
    if (next == end) return std::nullopt;
    expected = expected * shape[static_cast<size_t>(*next)];
    std::rotate(next, next + 1, end);
  }
  return order;
}

bool is_viewable(Builder& b, const Tensor& tensor, const Shape& shape) {
  if (is_contiguous(b, tensor)) return true;
  const Shape old = shape_of(b, tensor);
  const std::vector<sym::Expr>& strides = *tensor.strides;
  if (strides.size() != old.size()) return false;
  // Runs of dims that are adjacent in memory; a new dim must not cross their borders.
  size_t at = shape.size();
  sym::Expr run = 1;
  for (size_t d = old.size(); d-- > 0;) {
    run = run * old[d];
    const bool ends =
        d == 0 || (!old[d - 1].is_const(1) && !b.holds(sym::eq(strides[d - 1], strides[d] * old[d])));
    if (!ends) continue;
    sym::Expr covered = 1;
    while (at > 0 && !b.holds(sym::eq(covered, run))) covered = covered * shape[--at];
    if (!b.holds(sym::eq(covered, run))) return false;
    run = 1;
  }
  return std::all_of(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(at),
                     [](sym::Expr dim) { return dim.is_const(1); });
}

}  // namespace stridec::aten
