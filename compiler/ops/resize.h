// What frontends need to make a resize node; the attributes are listed in resize.cpp.
#pragma once

#include <cstdint>

namespace stridec::ops {

struct Rational {
  int64_t p, q;
};
// The simplest fraction within the precision of a float: 0.6f becomes 3/5.
Rational nearest_rational(double value);

}  // namespace stridec::ops
