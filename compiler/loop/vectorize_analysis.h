// Vectorisation legality: whether points can be vector lanes, and where the lanes' elements are if the
// address is not linear in the lane number.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::loop {

// Whether a loop extent in the block depends on `var`: lanes along `var` would then have different trip
// counts.
bool moves_extents(const Block& block, sym::Expr var);

// Lanes 0 .. width-1 stand for var = width*strip() .. width*strip() + width-1. Lane l's value of `offset` is
// base + spread[l]; the smallest spread is 0. Example: x[c//4] gives 0 0 0 0 1 1 1 1 ...
struct Spread {
  sym::Expr base;  // with strip() in place of the variable
  std::vector<int64_t> spread;
  int64_t elements() const;  // span of the lanes' elements: the largest spread, plus 1
};
sym::Expr strip();  // an index variable: the vector's number along the lanes' dim

// Nothing if the distance between two lanes is not constant.
std::optional<Spread> spread_of(sym::Expr offset, sym::Expr var, int width, const sym::Facts& facts);
// Whether the offset grows by at most one from each lane to the next, through all clamps and remainders. If
// so, and the last lane's offset exceeds the first's by width - 1, the lanes are contiguous in memory: one
// comparison chooses between a vector load and a gather.
bool grows_by_at_most_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);
// Whether the offset grows by at least one. Example: the offset of a flat index that is split into an image
// and the rest, where an image's stride is not smaller than the rest's extent. The same comparison applies.
bool grows_by_at_least_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);
// Whether the offset never decreases along the lanes. All lanes then lie between the elements of the first
// and the last one: if that span fits in a vector, a load and a permutation replace the gather.
bool never_falls(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);

}  // namespace stridec::loop
