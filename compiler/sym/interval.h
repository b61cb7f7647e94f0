// Interval arithmetic that saturates: the extreme numbers are infinities.
#pragma once

#include "compiler/sym/facts.h"

namespace stridec::sym {

Interval add(Interval a, Interval b);
Interval multiply(Interval a, Interval b);
Interval multiply(Interval a, int64_t k);
Interval square(Interval a);
Interval divide(Interval a, Interval b);     // floordiv; b == 0 has no value
Interval remainder(Interval a, Interval b);  // mod
Interval smaller(Interval a, Interval b);    // min
Interval larger(Interval a, Interval b);     // max
Interval hull(Interval a, Interval b);
Interval intersect(Interval a, Interval b);

}  // namespace stridec::sym
