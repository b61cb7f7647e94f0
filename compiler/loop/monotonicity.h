// Monotonicity of a value along an index: its maximum or minimum is then at an end point, without a
// reduction.
#pragma once

#include <functional>
#include <optional>

#include "compiler/loop/program.h"

namespace stridec::loop {

// How a value changes as an index grows (neither flag set: it is constant). For floats, low and high bound
// the value; it is never NaN.
struct Monotonicity {
  bool falls = false, rises = false;  // whether it may decrease, whether it may increase
  double low = 0, high = 0;
};

// The monotonicity of `value` along `var`, for statements without loops; nothing if it is unknown.
// `definition` returns the let, constant or index value that defines a value, and null for values that do not
// depend on `var`.
std::optional<Monotonicity> monotonicity_of(const Nest& nest, ValueId value, sym::Expr var,
                                            const std::function<const Stmt*(ValueId)>& definition);

}  // namespace stridec::loop
