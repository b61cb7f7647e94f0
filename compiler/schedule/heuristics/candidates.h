// The schedules that a nest may run with: one list for the defaults, the tuner, its database and the tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"

namespace stridec::schedule {

struct Candidate {
  loop::Schedule schedule;
  double cycles;  // by the analytic model: of one core, symbols at a typical size
  std::string
      family;  // candidates that the model errs about alike: a micro-kernel and how it reads, lanes along a dim
};

// Every schedule in the tuner's space, each legal for all sizes that the symbols allow. The first is the default, the
// others follow by the model's cycles. Layouts are final and weights not yet packed.
std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const CpuTarget& target);
// The first of them, at less cost.
loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const CpuTarget& target);

// Why a nest cannot have a schedule, from wherever it comes, as part of a sentence that names a directive; empty: it can.
// Loops without a template can have whatever applies (applies.h); of a template what is in the space, the first directive in
// which the schedule differs from the one there that is most like it.
std::string refusal(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target,
                    const loop::Schedule& schedule);
std::string refusal(std::span<const Candidate> space, const loop::Schedule& schedule);

// The same for a GPU, where cycles are those of all multiprocessors and the space is around the default: products keep
// their kernels for sizes that none of the shapes has. Without shapes the model counts all that the ranges allow. `around`
// is one of these: what differs from it as they do from the default follows it.
std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const GpuTarget& target, std::span<const SizesOf> shapes = {},
                                  const loop::Schedule* around = nullptr);
loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const GpuTarget& target);
std::string refusal(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                    const loop::Schedule& schedule);

}  // namespace stridec::schedule
