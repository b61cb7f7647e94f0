// Two matrix products of one value by two weights whose results meet at each point, as a gate and what it lets through do:
//
//   nest gated (%m, %n<8192)
//     %0 = reduce sum (%k) x[%m, %k] * w[%k, %n + 8 * (%n // 8)]
//     %1 = reduce sum (%k) x[%m, %k] * w[%k, %n + 8 * (%n // 8) + 8]
//     store y[%m, %n] f(%0, %1)
//
// The weights lie interleaved in one matrix: 8 columns of the first, 8 of the second. A tile of the product with twice as
// many columns then holds both sums of a point; those that tensor cores make lie in registers of one thread, since that is
// the order of their fragments, along the rows as well as along the columns.
#pragma once

#include <optional>
#include <utility>

#include "compiler/loop/program.h"

namespace stridec::kernels {

constexpr int64_t kPairBlock = 8;
// Where in the interleaved dim the first one's point of this number lies; the second's is kPairBlock behind it.
sym::Expr paired_index(sym::Expr point);

struct Pair {
  // The one product, its dim twice as long and the interleaved weight indexed by it as it stands. The second sum is a
  // copy of the first there, for what its statements are.
  loop::Nest nest;
  sym::Expr dim;
  loop::ValueId second;                   // the second sum
  loop::ValueId first_load, second_load;  // of the weight
};

// Nothing where the nest is not of this form.
std::optional<Pair> match_pair(const loop::Nest& nest);
// The pair's product, or the nest as it is.
loop::Nest product_of(const loop::Nest& nest);

// Of two sums in one nest that are the same but for one load each: these loads.
std::optional<std::pair<const loop::Load*, const loop::Load*>> differing_loads(const loop::Nest& nest,
                                                                               const loop::Reduce& a,
                                                                               const loop::Reduce& b);
// The two loops of a nest that has two, both sums.
std::optional<std::pair<size_t, size_t>> two_sums(const loop::Nest& nest);

}  // namespace stridec::kernels
