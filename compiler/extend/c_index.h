// Indices of functions in the subset of C: their ranges, comparisons with sizes, and elements read at them.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/extend/c_value.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

// The extents of the indices. Values have a leading dim for each open reduction, the innermost first, so that
// values from outside a reduction broadcast.
struct CRanges {
  graph::Shape shape;                 // of the outputs
  std::vector<sym::Expr> sizes = {};  // of the open reductions, outermost first

  int64_t rank() const { return static_cast<int64_t>(sizes.size() + shape.size()); }
  int64_t dim_of(int index) const { return static_cast<int64_t>(sizes.size()) + index; }
  sym::Expr extent_of(int index) const {
    return index < 0 ? sizes[static_cast<size_t>(-1 - index)] : shape[static_cast<size_t>(index)];
  }
};

// The value as a size expression; nullopt if it is not known when compiling.
std::optional<sym::Expr> known_size(const graph::Builder& builder, ops::Term value);

// a + b, a - b or a * b as an affine function of an index, if one operand is an index and the other a known
// size; for a product, a small constant.
std::optional<Affine> affine(const graph::Builder& builder, const std::string& sign, const CValue& a,
                             const CValue& b);

// The index as a value of this type. Nullopt for floats, for types of fewer than 32 bits, and for unsigned
// types if the index may be negative and wrap. All indices are assumed to fit 32 bits.
std::optional<Affine> as_type(const graph::Builder& builder, const CRanges& ranges,
                              const std::optional<Affine>& index, DType dtype);

struct IndexComparison {
  int index = 0;                      // Affine::index
  std::optional<bool> decided;        // the result, if it is the same at all positions
  std::optional<sym::Expr> boundary;  // the result changes before this position, 0 <= boundary <= extent
};
// Compares an index with a known size: `a sign b` in `dtype`. For other operands nothing is decided.
IndexComparison compare(const graph::Builder& builder, const CRanges& ranges, const std::string& sign,
                        const CValue& a, const CValue& b, DType dtype);

// x[indices] as a view. Nullopt unless each of `indices` is a known size or affine in an index that no other
// one uses, and all are in bounds.
std::optional<ops::Term> view_of(graph::Builder& builder, const CRanges& ranges, ops::Term x,
                                 const std::vector<CValue>& indices);
// The indices (Affine::index) that may be out of bounds. Empty if one of `indices` is neither affine nor a
// known size.
std::set<int> read_outside(const graph::Builder& builder, const CRanges& ranges, ops::Term x,
                           const std::vector<CValue>& indices);
// x[indices] by a gather; indices out of bounds are clamped.
ops::Term gathered(graph::Builder& builder, ops::Term x, const std::vector<CValue>& indices);

}  // namespace stridec::extend
