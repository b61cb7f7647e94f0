// The child process of measure.h: runs rounds over subjects on any kind of device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/tune/child.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

// Thrown after a fault of the device, which then accepts no more work: the process must end.
struct Fault {
  std::string reason;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Loads the subject's code. Returns why there is none, or "".
  virtual std::string load(size_t subject) = 0;
  // Allocates memory for the subjects that are alive.
  virtual void make_memory(const std::vector<bool>& alive) = 0;
  // The first call, which also loads pages and code. Returns what is wrong with the result as the kind of the
  // event.
  virtual Event first_call(size_t subject) = 0;
  // Seconds per call, over `times` calls in a row.
  virtual double call(size_t subject, size_t times) = 0;
  // The minimum duration of a series of calls for the clock to be precise enough.
  virtual double sample_seconds() const = 0;
};

std::unique_ptr<Runner> cpu_runner(const std::vector<Subject>& subjects, const MeasureOptions& options);

// Measures the subjects for which `alive` is true and writes events to the descriptor. Runs in the child.
void run_rounds(Runner& runner, const MeasureOptions& options, std::vector<bool> alive, int descriptor);
void run_worker(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
                const MeasureOptions& options, int descriptor);

}  // namespace stridec::tune
