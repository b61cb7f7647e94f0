// Values of functions in the subset of C, its conversions, and its library of mathematical functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/c_function.h"
#include "compiler/ops/term.h"

namespace stridec::extend {

// An index of the outputs or of a loop: scale * index + offset.
struct Affine {
  int index = 0;  // of the outputs: their dim; of loops: -1, -2, ... from the outermost
  int64_t scale = 1;
  sym::Expr offset = 0;
};

struct CValue {
  ops::Term term;
  bool weak = false;  // a real number whose type no operand has decided: 0.5
  std::optional<Affine> affine = {};
};

// None: the name is not a type that has numbers.
std::optional<DType> c_dtype(std::string_view name);
// Of <math.h>: M_PI, INFINITY, ...
std::optional<double> c_constant(std::string_view name);
// The first type of C that has the integer: decimal literals without u are signed.
DType literal_type(const CExpression& integer);
// The type of arithmetic on values of this type.
DType promoted(DType dtype);
// The type of arithmetic between the two.
DType common_type(const CValue& a, const CValue& b);
// Whether no operand has decided the type of real numbers.
bool are_weak(const CValue& a, const CValue& b);
ops::Term converted(ops::Term value, DType to);
ops::Term truth(ops::Term value);  // a bool

// A call of a function of the library. `refuse` throws.
CValue call_c_library(graph::Builder& builder, const CExpression& call, std::vector<CValue> args,
                      const std::function<void(const std::string& what)>& refuse);

}  // namespace stridec::extend
