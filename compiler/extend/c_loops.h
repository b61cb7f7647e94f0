// Which loops of functions in the subset of C are reductions, and what a reduction computes.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "compiler/extend/c_function.h"
#include "compiler/ops/term.h"

namespace stridec::extend {

// s = s + e, s = s * e, s = fmax(s, e) and the like.
struct CSum {
  std::string sign;          // "+", "-", "*", "min" or "max"
  bool ignores_nan = false;  // fmin and fmax
  const CExpression* item = nullptr;
};
// None: the assignment is not such an update of its variable.
std::optional<CSum> sum_of(const CStatement& assignment);

// Whether the loop is of the form for (int k = a; k < b; ++k) or k <= b.
bool is_counting(const CStatement& loop);

struct CProblem {
  Position at;
  std::string what;
};
// Why a counting loop that changes the outer variables `changed` is not a reduction. None: it is one; each of
// them is updated in one way and read nowhere, and the number of iterations does not depend on them.
std::optional<CProblem> problem_of_reduction(const CStatement& loop, const std::set<std::string>& changed);

// The neutral element of the update: combining it with a value leaves the value as it is.
ops::Term neutral(graph::Builder& builder, const CSum& sum, DType dtype);
// `start`, updated by all elements of `item` along `dims`; both have one type.
ops::Term accumulated(graph::Builder& builder, const CSum& sum, ops::Term start, ops::Term item,
                      const ops::Dims& dims);
// Whether updates by items of a type, each of which is converted to the accumulator's type, are those of C.
bool takes_items(const CSum& sum, DType accumulator, DType item);

}  // namespace stridec::extend
