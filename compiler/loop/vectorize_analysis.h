// Whether points can be the lanes of a vector, and where these find their elements when the address is no multiple of the
// lane's number.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::loop {

// Whether a loop of the block takes as many rounds as `var` says: lanes along `var` would not end together.
bool moves_extents(const Block& block, sym::Expr var);

// Lanes 0 .. width-1 stand for var = width*strip() .. width*strip() + width-1. Lane l's value of `offset` is
// base + spread[l], the smallest of spread 0: x[c//4] gives 0 0 0 0 1 1 1 1 ...
struct Spread {
  sym::Expr base;  // over strip() in place of the variable
  std::vector<int64_t> spread;
  int64_t elements() const;  // that the lanes read between them: the largest of spread, plus 1
};
sym::Expr strip();  // an index variable: the number of a vector along the lanes' dim

// Nothing where the distance between two lanes is no constant.
std::optional<Spread> spread_of(sym::Expr offset, sym::Expr var, int width, const sym::Facts& facts);

// Does the offset grow by at most one from each lane to the next, wherever its clamps and remainders turn? Then lanes whose
// last is as far from the first as there are lanes between them are neighbours in memory: one comparison tells a vector load
// from a gather.
bool grows_by_at_most_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);
// Does it grow by one at least, such as the place of a number that is taken apart into an image and the rest, where an image
// is no smaller than the rest? The same comparison tells.
bool grows_by_at_least_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);
// Does it never fall from a lane to the next? Then what lies between the first lane's element and the last one's holds all of
// theirs: where that is no more than a vector, one load and a permutation do for a gather.
bool never_falls(sym::Expr offset, sym::Expr lane, const sym::Facts& facts);

}  // namespace stridec::loop
