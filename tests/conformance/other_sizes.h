// Sizes other than those of the data at hand that a program admits, with data to match.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/loop/interpret.h"
#include "tests/conformance/suite.h"

namespace stridec::conformance {

struct OtherSizes {
  std::vector<std::pair<sym::Expr, int64_t>> sizes;  // of every symbol that inputs give
  std::vector<loop::HostTensor> inputs;
};
std::string to_string(const OtherSizes& sizes);  // "x.0 4, x.1 4"

// The best first: those that differ in the most symbols, the larger before the smaller. Sizes grow, and elements are
// repeated, so that what the data indexes stays in range. Guards hold for all of them; what the data says may still fit
// the sizes at hand alone.
std::vector<OtherSizes> other_sizes(const loop::Program& program,
                                    const std::vector<loop::HostTensor>& inputs);

// Floating-point operations of a run at these sizes, about.
double work(const loop::Program& program, const std::vector<std::pair<sym::Expr, int64_t>>& sizes);

// How much compiled code and the interpreter may differ: sums in another order, then rounded to the tensor's dtype.
Tolerance tolerance_of(const loop::HostTensor& want);

}  // namespace stridec::conformance
