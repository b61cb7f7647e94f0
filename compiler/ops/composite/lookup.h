// Look-up of values in tables known when the graph is built.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Looks up each element of x. Each table has pairs of a key and a position; floating-point x use `floats`,
// others `integers`. Gives the position as i64, or -1 if no key matches. NaN matches NaN.
Term find_number(Term x, std::vector<std::pair<double, int64_t>> floats,
                 std::vector<std::pair<int64_t, int64_t>> integers);

}  // namespace stridec::ops
