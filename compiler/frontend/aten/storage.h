// Functionalisation: tensors are views of storages, and a write through one view is seen by all others.
//
// A storage has a current value, its base, and a version that every write increments. A tensor is a storage
// and a chain of views from its base. Reading a tensor applies the chain to the current base; writing one
// applies the inverse of each view, from the last to the first, and the result becomes the new base. The
// order of calls is the order of effects, as in PyTorch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::aten {

using graph::Builder;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;
using ops::Dims;
using ops::Term;

struct Storage {
  ValueId base;
  int version = 0;
  // Of the base, in elements, as PyTorch lays it out; none: contiguous.
  std::optional<std::vector<sym::Expr>> strides;
  // Those that are the same memory if data decide so. A write to one leaves the others stale: what they hold
  // is not known.
  std::vector<std::weak_ptr<Storage>> aliases = {};
  bool stale = false;
};

// `read` gives the view of a base, `write` the base in which the view has the new value. Without `write`, the
// elements are scattered to the positions that `read` takes them from.
using ReadFn = std::function<Term(Term base)>;
using WriteFn = std::function<Term(Term base, Term value)>;

struct View {
  std::shared_ptr<const View> parent;  // null: of the storage's base
  ReadFn read;
  WriteFn write;
  // The value at this version of the storage.
  mutable ValueId cached;
  mutable int cached_version = -1;
};

struct Tensor {
  std::shared_ptr<Storage> storage;
  std::shared_ptr<const View> view;  // null: the storage's base
  // A Python number that became a tensor: it is weak in type promotion.
  bool wrapped = false;
  // The value is real; its last dim holds the real and the imaginary parts of complex numbers.
  bool complex = false;
  // Strides as PyTorch lays the tensor out; none: not known, taken as contiguous.
  std::optional<std::vector<sym::Expr>> strides;
};

Tensor fresh(Term value);
// The shape as PyTorch sees it: without the last dim of complex numbers.
Shape shape_of(Builder& b, const Tensor& tensor);
// Throws Error if the storage is stale.
Term read(Builder& b, const Tensor& tensor);
// The value must have the tensor's dtype and shape.
void write(Builder& b, const Tensor& tensor, Term value);
Tensor view_of(const Tensor& tensor, ReadFn read, WriteFn write = {});
// From now on, data decide whether the two are the same memory.
void add_alias(const std::shared_ptr<Storage>& a, const std::shared_ptr<Storage>& b);

// 0, 1, ... in row-major order.
Term numbered(Builder& b, const Shape& shape);
// What the tensor's first element is in `numbers`, which number those of its base; [1], 0 without elements.
Term first_number(const Tensor& tensor, Term numbers);

// Whether PyTorch's strides are those of a row-major tensor without gaps.
bool is_contiguous(Builder& b, const Tensor& tensor);
// The order of the dims in which the elements follow each other in memory; none if they have gaps or repeat.
std::optional<Dims> memory_order(Builder& b, const Tensor& tensor);
// Whether a tensor with these strides can be viewed with another shape without a copy (at::computeStride).
bool is_viewable(Builder& b, const Tensor& tensor, const Shape& shape);

}  // namespace stridec::aten
