// Finds other sizes that a program accepts than those of given data, and derives data of these sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/loop/interpret.h"
#include "tests/conformance/suite.h"

namespace stridec::conformance {

struct OtherSizes {
  std::vector<std::pair<sym::Expr, int64_t>> sizes;  // of every symbol that inputs define
  std::vector<loop::HostTensor> inputs;
};
std::string to_string(const OtherSizes& sizes);  // "x.0 4, x.1 4"

// Best first: most changed symbols, then larger sizes. Sizes only grow and elements are repeated, so that
// indices in the data stay in range. All results satisfy the guards; the data may still be valid for the
// given sizes only.
std::vector<OtherSizes> other_sizes(const loop::Program& program,
                                    const std::vector<loop::HostTensor>& inputs);

// Approximate floating-point operations of a run at these sizes.
double work(const loop::Program& program, const std::vector<std::pair<sym::Expr, int64_t>>& sizes);

// Allowed difference between compiled code and the interpreter: sums in another order, rounded to the
// tensor's dtype.
Tolerance tolerance_of(const loop::HostTensor& want);

}  // namespace stridec::conformance
