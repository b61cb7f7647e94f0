// The child process of measure.h: rounds over subjects, whatever runs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/tune/child.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

// The machine after a fault takes no more work: the process has to end.
struct Fault {
  std::string reason;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // The subject's code; why there is none, or "".
  virtual std::string load(size_t subject) = 0;
  // Memory for those that are alive.
  virtual void make_memory(const std::vector<bool>& alive) = 0;
  // Once, for pages and code. What is wrong with the result, as an event of that kind.
  virtual Event first_call(size_t subject) = 0;
  // Seconds of one of `times` calls in a row.
  virtual double call(size_t subject, size_t times) = 0;
  virtual double sample_seconds() const = 0;  // that calls in a row should take for a clock to be good enough
};

std::unique_ptr<Runner> cpu_runner(const std::vector<Subject>& subjects, const MeasureOptions& options);

// Measures the subjects for which `alive` holds, writing events to the descriptor. Runs in the child.
void run_rounds(Runner& runner, const MeasureOptions& options, std::vector<bool> alive, int descriptor);
void run_worker(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
                const MeasureOptions& options, int descriptor);

}  // namespace stridec::tune
