#include "tests/support/race_check.h"

#include <algorithm>
#include <iterator>

namespace stridec::test {

uint64_t RaceCheck::begin_block() {
  seen_.clear();
  acquired_.clear();
  return block_ = ++now_;
}

void RaceCheck::pass_barrier() {
  ++now_;
  for (const auto& [thread, seen] : acquired_) add(seen_, seen);
  acquired_.clear();
}

void RaceCheck::add(Seen& to, const Seen& more) {
  for (const auto& [block, until] : more) to[block] = std::max(to[block], until);
}

void RaceCheck::meet_at(uintptr_t counter, Thread thread) {
  Seen& there = released_[counter];
  Seen& mine = acquired_[thread.index];
  add(mine, seen_);
  add(mine, there);
  add(there, mine);
  there[block_] = now_;
}

bool RaceCheck::sees(const Seen& seen, uint64_t when) const {
  const auto behind = seen.upper_bound(when);
  return behind != seen.begin() && when < std::prev(behind)->second;
}

bool RaceCheck::meet(Stamp before, Thread thread, uintptr_t at) const {
  const uint64_t when = before >> (kThreadBits + kPassedBits);
  if (when < launch_ || before == 0) return false;
  if (when < block_) {
    const auto behind = memory_.upper_bound(at);
    if (behind == memory_.begin() || at >= std::prev(behind)->second) return false;
    const auto own = acquired_.find(thread.index);
    return !sees(seen_, when) && !(own != acquired_.end() && sees(own->second, when));
  }
  if (when < now_) return false;
  const uint32_t other = before >> kPassedBits & ((1u << kThreadBits) - 1),
                 passed = before & ((1u << kPassedBits) - 1);
  const bool ordered =
      other / 32 == thread.index / 32 && passed != (thread.passed & ((1u << kPassedBits) - 1));
  return other != thread.index && !ordered;
}

void RaceCheck::touch(uintptr_t address, size_t bytes, bool store, Thread thread) {
  const Stamp stamp = now_ << (kThreadBits + kPassedBits) | uint64_t{thread.index} << kPassedBits |
                      (thread.passed & ((1u << kPassedBits) - 1));
  const auto index_of = [](Stamp s) {
    return static_cast<uint32_t>(s >> kPassedBits & ((1u << kThreadBits) - 1));
  };
  const auto report = [&](uintptr_t at, Stamp before, bool stored) {
    if (!race_)
      race_ = {
          at, index_of(before), thread.index, stored, store, before >> (kThreadBits + kPassedBits) >= block_};
  };
  // A thread's own accesses since the last barrier are ordered. This also is the most frequent case.
  const auto meets = [&](Stamp before, uintptr_t at) {
    return (before ^ stamp) >> kPassedBits != 0 && meet(before, thread, at);
  };
  for (uintptr_t at = address; at < address + bytes; ++at) {
    if (at / kPage != last_ || !cells_) {
      std::unique_ptr<Cell[]>& page = pages_[last_ = at / kPage];
      if (!page) page = std::make_unique<Cell[]>(kPage);
      cells_ = page.get();
    }
    Cell& cell = cells_[at % kPage];
    if (meets(cell.store, at)) report(at, cell.store, true);
    if (store) {
      for (const Stamp load : cell.loads)
        if (meets(load, at)) report(at, load, false);
      cell.store = stamp;
    } else {
      // Remember two threads, so that at least one differs from a storing thread.
      if (meets(cell.loads[0], at)) cell.loads[1] = cell.loads[0];
      cell.loads[0] = stamp;
    }
  }
}

}  // namespace stridec::test
