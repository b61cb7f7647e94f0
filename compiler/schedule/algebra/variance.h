// Matches a sum of squared deviations from a mean that follows the sum yielding the mean (a variance).
//
//   s = reduce sum over D of x              mean = s / |D|              q = reduce sum over D of (x - mean)^2
//
// Each part p of D has its own sum s[p] and deviations q[p] from its own mean, so x is read only once:
//
//   q = sum over p of q[p] + |p| * (s[p] / |p| - mean)^2
//
// Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979). No
// part suffers cancellation, whatever the mean.
#pragma once

#include <optional>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::schedule {

struct VarianceSum {
  size_t at;           // index of the sum q among the nest's statements
  loop::ValueId mean;  // the mean over all of D, defined before q
};

// Matches the variance that belongs to the sum at index `sum` of the nest's statements, whose dims are known
// to be non-empty.
std::optional<VarianceSum> variance_after(const loop::Nest& nest, size_t sum, const sym::Facts& facts);

}  // namespace stridec::schedule
