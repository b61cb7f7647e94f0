// Tells which steps read and write each buffer, and which steps may be reordered.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {

// How many steps of a whole program, nested ones included, read and write each buffer.
class UserCounts {
 public:
  int writers(loop::BufferId id) const { return at(writers_, id); }
  int readers(loop::BufferId id) const { return at(readers_, id); }
  // Adds `by`, 1 or -1, to the counts of all buffers in `effects`.
  void add(const Effects& effects, int by);

 private:
  static int at(const std::vector<int>& counts, loop::BufferId id) {
    return id.value < static_cast<int64_t>(counts.size()) ? counts[static_cast<size_t>(id.value)] : 0;
  }
  std::vector<int> writers_, readers_;
};

// Of all steps of the program.
UserCounts user_counts(const loop::Program& program);

// Readers and writers of each buffer in one list of steps. The fusion rules keep it up to date.
class Flow {
 public:
  // What becomes of an erased step. kPlace: it keeps its position until close_gaps(), so that erasing takes
  // the same time whatever the number of steps. It reads and writes nothing.
  enum class Erased { kNothing, kPlace };

  Flow() = default;
  Flow(const loop::Program& program, const loop::Steps& steps, Erased leaves = Erased::kNothing);

  int size() const { return static_cast<int>(keys_.size()); }
  // Of the step at this position; control flow counts with everything inside it.
  const Effects& effects(int at) const { return slots_[slot_of(at)].effects; }
  const UserCounts& counts() const { return counts_; }
  int writer_count(loop::BufferId id) const { return counts_.writers(id); }
  int reader_count(loop::BufferId id) const { return counts_.readers(id); }
  // The positions strictly between `first` and `last` of the steps that write, or read, the buffer, in order.
  std::vector<int> writers_between(loop::BufferId id, int first, int last) const;
  std::vector<int> readers_between(loop::BufferId id, int first, int last) const;
  // Strictly between the positions: steps that bind symbols.
  std::vector<int> binders_between(int first, int last) const;

  // Identifies the contents of the step: replace() assigns a new stamp.
  int64_t stamp(int at) const { return slots_[slot_of(at)].stamp; }

  void replace(int at, Effects effects);
  // Erases the step here and in `steps`. Returns the number of positions by which later steps move: 1 or 0.
  int erase(loop::Steps& steps, int at);
  bool is_gap(int at) const { return slots_[slot_of(at)].gone; }
  void close_gaps(loop::Steps& steps);
  void move(int from, int to);  // the launch at `from` to `to`; only launches lie between

 private:
  // Each step has a key, the number of its slot. Keys increase with the position, so that erasing a step
  // leaves the keys and slots of the others as they are.
  using Keys = std::vector<int64_t>;
  struct Slot {
    Effects effects;
    int64_t stamp;
    bool gone = false;
  };
  struct Users {
    Keys writers, readers;
  };
  size_t slot_of(int at) const { return static_cast<size_t>(keys_[static_cast<size_t>(at)]); }
  std::vector<int> positions(const Keys& keys, int first, int last) const;
  Users& users_of(loop::BufferId id);
  void enter(int at);
  void leave(int at);

  std::vector<Slot> slots_;  // by key
  UserCounts counts_;
  Keys keys_, binders_;  // keys_: by position
  int64_t next_stamp_ = 0;
  Erased leaves_ = Erased::kNothing;
  std::vector<Users> users_;  // by buffer
};

// The last step before `at` that writes the buffer, if it is a launch; otherwise -1.
int writer_before(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int at,
                  loop::BufferId id);
// Whether the buffer is an arena buffer that exactly one step writes.
bool made_once(const loop::Program& program, const Flow& flow, loop::BufferId id);
// Whether, in addition, exactly one step reads it.
bool passes_once(const loop::Program& program, const Flow& flow, loop::BufferId id);

// Whether the nest at `from` may move to just before (when moving up) or just after (when moving down) `to`,
// past all steps strictly between the two except those in `with`, which move along. It may not move up past a
// step that binds a symbol it uses. It may pass steps that touch disjoint parts of the same buffers.
bool may_move(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with = {});

}  // namespace stridec::schedule
