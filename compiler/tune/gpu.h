// Measures on a GPU of this machine in a child process.
//
// Only the child opens the driver, because the driver does not survive fork(), and the damage of a faulty
// kernel ends with the process. Opening takes a large part of a second, so the child stays for later races
// until it faults or hangs; the next race then starts a new one. Subjects are sent through its socket
// (ipc.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/tune/child.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

class Gpu {
 public:
  // Uses the first device of the driver, for code of the target.
  explicit Gpu(const GpuTarget& target);
  Gpu(const Gpu&) = delete;
  ~Gpu();

  // Why nothing can be measured: there is no driver, or the device cannot run the target's code; "": it can.
  const std::string& problem() const { return problem_; }
  const std::string& name() const { return name_; }  // "NVIDIA_H200", one word

  // Requests a race of these subjects from the child, or from a new one. Events follow on its socket. Returns
  // no child if problem() is not empty.
  Child ask(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
            const MeasureOptions& options);
  // Ends the use of the child. Returns the status that waitpid() gives.
  int end(bool kill_it);

 private:
  void start();

  const GpuTarget& target_;
  Child child_;
  std::string problem_, name_;
};

}  // namespace stridec::tune
