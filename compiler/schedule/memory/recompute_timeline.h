// A run as a list of steps that can be repeated: what recompute.h searches without touching the program.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// A tensor: the contents of a buffer, or of a copy that a repeated launch computes. The first tensors are the
// program's buffers, by BufferId.
using Tensor = int;

// One step of the run: a step of the program, or the repetition of one of its launches.
struct TimelineStep {
  int of;  // position among the program's steps
  bool repeated = false;
  std::vector<Tensor> reads, writes;
  std::vector<std::pair<loop::BufferId, Tensor>> replaced;  // buffers whose place another tensor takes
};

class RecomputeTimeline {
 public:
  explicit RecomputeTimeline(const loop::Program& program);

  struct Peak {
    int at;        // position of the step, the first one if there are several
    double bytes;  // live there
  };
  Peak peak() const;

  // A launch to repeat, by the position of its step, for the tensors that it computes.
  struct Launch {
    int at;
    std::vector<Tensor> tensors;
  };
  // Launches to repeat just before position `before`, those that compute operands first.
  struct Repeat {
    int before;
    std::vector<Launch> launches = {};
    double saved = 0;     // bytes that are no longer live at the peak
    double work = 0;      // of all launches together, in bytes of memory traffic
    double replaced = 0;  // of repetitions that these launches replace, likewise
    double net_work() const { return std::max(work - replaced, 1.0); }
  };
  // The best way to free memory at the peak: the most bytes for the least work, within `work` in all.
  std::optional<Repeat> best(const Peak& peak, double work) const;
  void apply(const Repeat& repeat);

  double total_work() const;  // of the program's launches
  loop::Program materialize() const;

  const std::vector<TimelineStep>& steps() const { return steps_; }
  loop::BufferId buffer_of(Tensor tensor) const { return of_[static_cast<size_t>(tensor)]; }

 private:
  struct Search;
  double bytes_of(Tensor tensor) const;
  bool is_scratch(Tensor tensor) const;
  void find_uses();
  std::optional<Tensor> operand_at(Tensor read, int from, int before) const;
  int group_of(int at) const;
  bool is_own(Tensor tensor) const;
  bool may_repeat(int at) const;
  std::vector<Tensor> siblings(Tensor tensor, const Peak& peak, int before) const;
  std::vector<Tensor> later_copies(Tensor tensor, int before) const;
  Tensor add_copy(Tensor of);
  int writer_of(Tensor tensor) const { return writers_[static_cast<size_t>(tensor)].front(); }
  void redirect(Tensor from, Tensor to, int begin);
  loop::Nest repetition(loop::Program& out, const TimelineStep& step,
                        std::map<loop::BufferId, loop::BufferId>& names) const;

  const loop::Program& program_;
  std::vector<TimelineStep> steps_;
  std::vector<loop::BufferId> of_;               // by tensor
  std::vector<std::vector<Tensor>> tensors_of_;  // by buffer: all with its contents
  std::vector<double> bytes_;                    // by buffer; 0: not in the arena
  std::vector<double> work_;                     // by position in the program
  std::vector<bool> repeatable_;                 // likewise
  // By tensor: positions of the steps that touch it and that write it, ascending.
  std::vector<std::vector<int>> uses_, writers_;
};

}  // namespace stridec::schedule
