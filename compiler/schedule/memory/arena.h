// Places buffers of symbolic sizes and known lifetimes in one arena.
//
// The arena is a row of adjacent slots. Over time a slot is a sequence of rooms with disjoint time spans; a
// room holds one buffer, or is again a row of slots. So buffers that are live together never overlap,
// whatever the symbols' values: a slot is as large as its largest room, a room is the sum of its slots, and
// an offset is a sum of such sizes. A large buffer with a short lifetime leaves its slot to many small ones
// before and after it.
//
// The room of a buffer is chosen at given sizes: larger buffers first, each where the arena grows least (the
// "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv
// 2001.03288, with rooms in place of numeric offsets). While the arena exceeds the peak of live memory,
// planning is retried with the buffer that last made the arena grow placed first.
//
// A plan that is tight at some sizes may be loose at others. Of the plans for each of the given sizes, up to
// three are kept: those that together come closest to the peak of live memory. A run uses the smallest of
// them for its sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "compiler/sym/facts.h"

namespace stridec::schedule {

// First and last step at which a buffer holds data.
struct Lifetime {
  int first = std::numeric_limits<int>::max();
  int last = -1;
  void touch(int at) {
    first = at < first ? at : first;
    last = at > last ? at : last;
  }
  bool used() const { return last >= 0; }
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

struct ArenaItem {
  Lifetime life;
  sym::Expr bytes;                     // a multiple of the alignment
  std::vector<int64_t> typical_bytes;  // at each of the given sizes; the same count for every item
};

struct ArenaPlan {
  std::vector<sym::Expr> offsets;  // of each item, in bytes
  sym::Expr bytes = 0;             // of the arena
};

// Joins items that are written in place: writing over an operand that nothing reads later extends the
// operand's life, and both become one item. Items are visited in `order`. `operand`: the item that an item
// overwrites, if any. Returns for each item the index of the item whose life covers it, often itself.
std::vector<size_t> join_in_place(std::span<Lifetime> lives, std::span<const size_t> order,
                                  const std::function<std::optional<size_t>(size_t)>& operand);

ArenaPlan plan_arena(std::span<const ArenaItem> items, const sym::Facts& facts);

}  // namespace stridec::schedule
