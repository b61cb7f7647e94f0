// The space of schedules of a nest: one list for the defaults, the tuner, its database and the tests.
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
  double cycles;  // by the analytical model: of one core, symbols at typical sizes
  // Candidates with similar model error: a micro-kernel and the way it reads, or the vectorised dim.
  std::string family;
};

// Every schedule in the tuner's space, each legal for all sizes that the symbols allow. The first is the
// default; the others follow in order of the model's cycles. Runs after layouts are final and before weights
// are packed.
std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const CpuTarget& target);
// The first candidate, computed at less cost.
loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const CpuTarget& target);

// Why a nest cannot have the schedule, whatever its origin, as part of a sentence that names a directive;
// empty if it can. Plain loops accept every schedule that applies (applies.h). A template accepts only
// schedules of its space; the sentence then names the first directive that differs from the most similar
// schedule there.
std::string refusal(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target,
                    const loop::Schedule& schedule);
std::string refusal(std::span<const Candidate> space, const loop::Schedule& schedule);

// The same for a GPU. Cycles are those of all multiprocessors, and the space is formed around the default:
// GEMMs keep their kernels for sizes that none of the shapes has. Without shapes the model considers all
// sizes that the ranges allow. `around`, a schedule of the space, takes the place of the default.
std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const GpuTarget& target, std::span<const SizesOf> shapes = {},
                                  const loop::Schedule* around = nullptr);
loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const GpuTarget& target);
std::string refusal(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                    const loop::Schedule& schedule);

}  // namespace stridec::schedule
