// Where buffers of symbolic sizes and known lifetimes lie in one arena.
//
// The arena is a row of slots side by side. Over time a slot is a sequence of rooms, whose windows of time are apart; a
// room holds one buffer, or is again a row of slots. What is alive together thus never meets, whatever the symbols are:
// a slot is as large as its largest room, a room as the sum of its slots, and an offset is a sum of such sizes. A large
// buffer that lives briefly leaves its slot to many small ones before and after it.
//
// Which room a buffer takes is decided at given sizes: larger ones first, each where the arena grows least (the
// "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv 2001.03288,
// with rooms in place of numbers for offsets). While that takes more than what is alive at once, it is tried again with the
// buffer that made the arena grow last as the first.
//
// What is tight at some sizes may be far from it at others. Of the plans for each of the sizes given up to three are kept, those
// that together come closest to what is alive at once, and a run takes the smallest of them for its own sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "compiler/sym/facts.h"

namespace stridec::schedule {

// First and last step at which a buffer holds something.
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
  std::vector<int64_t> typical_bytes;  // at each of the sizes given, as many of them for every item
};

struct ArenaPlan {
  std::vector<sym::Expr> offsets;  // of each item, bytes
  sym::Expr bytes = 0;             // of the arena
};

// What is written over an operand that nothing reads later prolongs the operand's life: one item for both. In the order given;
// `operand`: over which item one is written, if over any. For each item the one whose life is theirs, often itself.
std::vector<size_t> join_in_place(std::span<Lifetime> lives, std::span<const size_t> order,
                                  const std::function<std::optional<size_t>(size_t)>& operand);

ArenaPlan plan_arena(std::span<const ArenaItem> items, const sym::Facts& facts);

}  // namespace stridec::schedule
