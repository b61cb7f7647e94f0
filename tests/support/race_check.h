// Races of an emulated kernel: accesses to one byte by two threads, one of them a store, that no barrier puts in order.
//
// The threads of a block are ordered by its barriers, those of a warp by the warp's as well, and blocks of a launch by
// counters alone, which they acquire and release: who comes later to one sees what the blocks that were there before had done,
// or seen, ahead of their last barrier, and so do its block's other threads behind their next one. Launches follow each other.
// A shuffle is no barrier: it passes values on, not what is in memory. Of the threads that read a byte between two barriers
// two are remembered, which finds a race wherever there is one. Other atomic accesses are not told, and teams of threads
// within a warp count as one.
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
    uint32_t index = 0;   // in its block
    uint32_t passed = 0;  // barriers of its warp
  };
  // Two threads that met, and where.
  struct Race {
    uintptr_t address;
    uint32_t first, second;
    bool first_stored, second_stored, of_one_block;
  };

  // `memory` holds bytes that all blocks share, each range's end at its beginning; elsewhere every block has its own.
  void begin_launch(std::map<uintptr_t, uintptr_t> memory) {
    memory_ = std::move(memory);
    launch_ = begin_block();
    released_.clear();
  }
  uint64_t begin_block();
  void pass_barrier();
  // Atomic access to a counter that acquires and releases, at the scope of the device.
  void meet_at(uintptr_t counter, Thread thread);
  void touch(uintptr_t address, size_t bytes, bool store, Thread thread);

  const std::optional<Race>& race() const { return race_; }
  void forget() { race_.reset(); }

 private:
  static constexpr int kThreadBits = 10, kPassedBits = 20;
  static constexpr uintptr_t kPage = 4096;
  // When a byte was accessed and by whom: what lies between two barriers of a block counts on through all launches.
  using Stamp = uint64_t;
  struct Cell {
    Stamp store = 0;
    std::array<Stamp, 2> loads = {};
  };

  // Of blocks, by when they began: until when what they did is seen.
  using Seen = std::map<uint64_t, uint64_t>;
  static void add(Seen& to, const Seen& more);

  bool meet(Stamp before, Thread thread, uintptr_t at) const;
  bool sees(const Seen& seen, uint64_t when) const;

  std::map<uintptr_t, uintptr_t> memory_;

  std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> pages_;
  uintptr_t last_ = 0;  // the page that was touched last
  Cell* cells_ = nullptr;
  uint64_t now_ = 0, launch_ = 0, block_ = 0;
  std::map<uintptr_t, Seen> released_;  // by counter
  Seen seen_;                           // by all threads of the block
  std::map<uint32_t, Seen> acquired_;   // by one of them since the last barrier
  std::optional<Race> race_;
};

}  // namespace stridec::test
