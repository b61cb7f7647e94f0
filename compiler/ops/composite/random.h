// Random draws. A stream is a seed and a generator: the same stream gives the same numbers in every run.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

Term uniform(Builder& b, const Shape& shape, double low, double high, DType dtype, int64_t seed);
// By the Box-Muller transform of the streams seed and seed + 1.
Term normal(Builder& b, const Shape& shape, double mean, double deviation, DType dtype, int64_t seed);
// 1 with probability x, else 0.
Term bernoulli(Term x, DType dtype, int64_t seed);
// `samples` classes per row of x [rows, classes], whose elements are logarithms of probabilities, not
// necessarily normalised: [rows, samples].
Term multinomial(Term x, int64_t samples, DType dtype, int64_t seed);

// Sets elements to 0 with probability `ratio` (f64 scalar) and scales the others by 1 / (1 - ratio).
// `training` is a bool scalar, for a graph that decides at run time; none: true.
struct DropoutOptions {
  int64_t seed = 0;
  bool mersenne = false;  // NumPy's RandomState in place of a counter-based generator
};
struct Dropout {
  Term value, kept;  // kept: bool
};
Dropout dropout(Term x, Term ratio, std::optional<Term> training, const DropoutOptions& options);

// The state that counts runs for draws.
inline constexpr const char* kGenerator = "generator";
// Makes draws differ from run to run: those of the counter-based generator read the state kGenerator. Draws
// that were added since an earlier call join those before.
void advance_generator(Builder& b);
// A loop with a draw, which would give the same numbers in each iteration.
const graph::Node* loop_with_draws(const graph::Graph& graph);

}  // namespace stridec::ops
