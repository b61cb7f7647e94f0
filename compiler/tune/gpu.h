// A GPU of this machine in the hands of a child process.
//
// The driver is opened in the child alone: it does not live through fork(), and what a faulty kernel leaves of it ends
// with the process. Opening takes a good part of a second, so the child stays for the races that follow, until it
// faults or hangs; the next race then starts another one. Subjects go to it through its socket (ipc.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/tune/child.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

class Gpu {
 public:
  // The first device of the driver, for code of the target.
  explicit Gpu(const GpuTarget& target);
  Gpu(const Gpu&) = delete;
  ~Gpu();

  // Why nothing can be measured: there is no driver, or the device does not run the target's code; "": it can.
  const std::string& problem() const { return problem_; }
  const std::string& name() const { return name_; }  // "NVIDIA_H200", one word

  // Asks the child, or a new one, to race these. Events follow on its socket. None where problem() says why.
  Child ask(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
            const MeasureOptions& options);
  // No more use of the child. The status that waitpid() gives.
  int end(bool kill_it);

 private:
  void start();

  const GpuTarget& target_;
  Child child_;
  std::string problem_, name_;
};

}  // namespace stridec::tune
