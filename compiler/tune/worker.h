// The child process of measure.h: what it is sent and what it answers.
#pragma once

#include <vector>

#include "compiler/tune/measure.h"

namespace stridec::tune {

// Records on the pipe, in the order of events.
struct Event {
  enum class Kind : int32_t {
    kBegin,   // of a call of the subject: a process that ends or stays silent after it did so because of it
    kSample,  // seconds of one call
    kFailed,
    kEnd,  // of all
  };
  Kind kind;
  int32_t subject;
  int32_t round;
  int32_t reserved;
  double seconds;
  char reason[96];
};

// Measures the subjects for which `alive` holds, writing events to the descriptor. Runs in the child.
void run_worker(const std::vector<Subject>& subjects, std::vector<bool> alive, const MeasureOptions& options,
                int descriptor);

}  // namespace stridec::tune
