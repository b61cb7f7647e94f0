// How values move as an index grows: what the greatest or the least of them along it needs no pass to know.
#pragma once

#include <functional>
#include <optional>

#include "compiler/loop/program.h"

namespace stridec::loop {

// A value along an index: it never falls, never rises, or neither as it grows (both: it stays). Of floats, the numbers
// that it may have; it is never NaN.
struct Monotonicity {
  bool falls = false, rises = false;  // it may
  double low = 0, high = 0;
};

// Of `value` along `var`, of statements without loops. `definition` gives the let, constant or index value that makes a
// value; of others it gives nothing: they do not depend on `var`. Nothing where the trend is not known.
std::optional<Monotonicity> monotonicity_of(const Nest& nest, ValueId value, sym::Expr var,
                                            const std::function<const Stmt*(ValueId)>& definition);

}  // namespace stridec::loop
