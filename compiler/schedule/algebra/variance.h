// A sum of squared deviations from a mean, behind the sum that gives the mean: what variances are made of.
//
//   s = reduce sum over D of x              mean = s / |D|              q = reduce sum over D of (x - mean)^2
//
// Parts of D have sums of their own, s[p], and deviations from means of their own, q[p], so that x is gone through once:
//
//   q = sum over p of q[p] + |p| * (s[p] / |p| - mean)^2
//
// Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979). No part cancels,
// whatever the mean.
#pragma once

#include <optional>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::schedule {

struct VarianceSum {
  size_t at;           // of the sum q among the nest's statements
  loop::ValueId mean;  // of all of D, defined before it
};

// Of the sum at `sum` among the nest's statements, over dims that are known to have points.
std::optional<VarianceSum> variance_after(const loop::Nest& nest, size_t sum, const sym::Facts& facts);

}  // namespace stridec::schedule
