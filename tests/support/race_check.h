// Detects races in an emulated kernel: accesses to one byte by two threads, at least one of them a store,
// without a barrier that orders them.
//
// Barriers order the threads of a block, warp barriers those of a warp. Blocks of a launch are ordered only
// by counters, which they acquire and release: a thread at a counter sees everything that earlier visitors'
// blocks did or saw before their last barrier. The other threads of its block see it after their next
// barrier. Launches are ordered. A shuffle is not a barrier: it exchanges values but does not order memory.
//
// Two reading threads per byte are remembered between two barriers, which suffices to find any race. Other
// atomic accesses are not tracked. Cooperating thread groups within a warp count as the whole warp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

namespace stridec::test {

class RaceCheck {
 public:
  struct Thread {
    uint32_t index = 0;   // within its block
    uint32_t passed = 0;  // number of passed warp barriers
  };
  // Two conflicting threads, and the address.
  struct Race {
    uintptr_t address;
    uint32_t first, second;
    bool first_stored, second_stored, of_one_block;
  };

  // `memory` has the bytes that all blocks share, as a map from start to end of each range. Elsewhere, each
  // block has its own memory.
  void begin_launch(std::map<uintptr_t, uintptr_t> memory) {
    memory_ = std::move(memory);
    launch_ = begin_block();
    released_.clear();
  }
  uint64_t begin_block();
  void pass_barrier();
  // Atomic access to a counter, with acquire and release at device scope.
  void meet_at(uintptr_t counter, Thread thread);
  void touch(uintptr_t address, size_t bytes, bool store, Thread thread);

  const std::optional<Race>& race() const { return race_; }
  void forget() { race_.reset(); }

 private:
  static constexpr int kThreadBits = 10, kPassedBits = 20;
  static constexpr uintptr_t kPage = 4096;
  // Time of an access, and its thread. The time is the number of barrier intervals of blocks over all
  // launches.
  using Stamp = uint64_t;
  struct Cell {
    Stamp store = 0;
    std::array<Stamp, 2> loads = {};
  };

  // Per block, by its start time: the time until which its accesses are visible.
  using Seen = std::map<uint64_t, uint64_t>;
  static void add(Seen& to, const Seen& more);

  bool meet(Stamp before, Thread thread, uintptr_t at) const;
  bool sees(const Seen& seen, uint64_t when) const;

  std::map<uintptr_t, uintptr_t> memory_;

  std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> pages_;
  uintptr_t last_ = 0;  // the page touched last
  Cell* cells_ = nullptr;
  uint64_t now_ = 0, launch_ = 0, block_ = 0;
  std::map<uintptr_t, Seen> released_;  // by counter
  Seen seen_;                           // visible to all threads of the block
  std::map<uint32_t, Seen> acquired_;   // visible to single threads since the last barrier
  std::optional<Race> race_;
};

}  // namespace stridec::test
