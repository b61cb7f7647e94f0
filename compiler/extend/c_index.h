// Indices of functions in the subset of C: their ranges, comparisons with sizes, and elements read at them.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/extend/c_value.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

// How many values each index has. Reductions are the leading dims of values, the innermost first, so that
// values from outside broadcast.
struct CRanges {
  graph::Shape shape;                 // of the outputs
  std::vector<sym::Expr> sizes = {};  // of the reductions that are open, from the outermost

  int64_t rank() const { return static_cast<int64_t>(sizes.size() + shape.size()); }
  int64_t dim_of(int index) const { return static_cast<int64_t>(sizes.size()) + index; }
  sym::Expr extent_of(int index) const {
    return index < 0 ? sizes[static_cast<size_t>(-1 - index)] : shape[static_cast<size_t>(index)];
  }
};

// A size that the value is known to be, as an expression.
std::optional<sym::Expr> known_size(const graph::Builder& builder, ops::Term value);

// a + b, a - b or a * b as a function of one index: of two operands, one is an index, the other a known size.
std::optional<Affine> affine(const graph::Builder& builder, const std::string& sign, const CValue& a,
                             const CValue& b);

// The index as a value of this type. None: the type has no such values, or may wrap them; an index that is not
// negative is taken to fit 32 bits.
std::optional<Affine> as_type(const graph::Builder& builder, const CRanges& ranges,
                              const std::optional<Affine>& index, DType dtype);

struct IndexComparison {
  int index = 0;                      // Affine::index
  std::optional<bool> decided;        // it is so for all indices
  std::optional<sym::Expr> boundary;  // the result changes before this position, 0 <= boundary <= extent
};
// `a sign b` of an index with a known size, computed in `dtype`. Nothing is known of anything else.
IndexComparison compare(const graph::Builder& builder, const CRanges& ranges, const std::string& sign,
                        const CValue& a, const CValue& b, DType dtype);

// Elements at constants, and at indices of which each occurs once, if all of them are inside: a view.
std::optional<ops::Term> view_of(graph::Builder& builder, const CRanges& ranges, ops::Term x,
                                 const std::vector<CValue>& indices);
// The indices that are not always inside. None where not all are indices and constants.
std::set<int> read_outside(const graph::Builder& builder, const CRanges& ranges, ops::Term x,
                           const std::vector<CValue>& indices);
// Elements anywhere; indices outside are those of the nearest element.
ops::Term gathered(graph::Builder& builder, ops::Term x, const std::vector<CValue>& indices);

}  // namespace stridec::extend
