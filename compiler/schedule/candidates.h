// The schedules that a nest may run with: one list for the defaults, the tuner, its database and the tests.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

struct Candidate {
  loop::Schedule schedule;
  double cycles;  // by the analytic model: of one core, symbols at a typical size
  std::string
      family;  // candidates that the model errs about alike: a micro-kernel and how it reads, lanes along a dim
};

// Every schedule in the space, each legal for all sizes that the symbols allow. The first is the default, the
// others follow by the model's cycles. Layouts are final and weights not yet packed.
std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const CpuTarget& target);
// The first of them, at less cost.
loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const CpuTarget& target);

}  // namespace stridec::schedule
