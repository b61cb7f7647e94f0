// What frontends need to make a resize node; the attributes are listed in resize.cpp.
#pragma once

#include <cstdint>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Rational {
  int64_t p, q;
};
// The simplest fraction within the precision of a float: 0.6f becomes 3/5.
Rational nearest_rational(double value);
// The same for each number of a float tensor [n] that the run tells: i64 [n], q >= 1. 0/1 stands for what has none (too
// large, too small, not a number).
struct Rationals {
  Term p, q;
};
Rationals nearest_rationals(Term values);

}  // namespace stridec::ops
