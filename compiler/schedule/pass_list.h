// The passes on the loop program, in order: those that hold for every target, those for all CPUs, then those of one
// target.
#pragma once

#include <span>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/pass.h"
#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::schedule {

const PassList<loop::Program, const FusionOptions&>& loop_passes();
const PassList<loop::Program, std::vector<Decision>*>& cpu_loop_passes();
const PassList<loop::Program, const CpuTarget&, const Chosen&>& cpu_passes();
// The last one, once it is known what kernels need for themselves.
const PassList<loop::Program, std::span<Scratch>>& cpu_memory_passes();
struct GpuRules {
  DType factors = DType::kF32;  // what products take (--precision), f32 where they take what the model says
  bool epilogues = true;        // FusionOptions
  std::vector<Decision>* decisions = nullptr;
};
const PassList<loop::Program, const GpuTarget&, const GpuRules&>& gpu_loop_passes();
const PassList<loop::Program, const GpuTarget&, const Chosen&>& gpu_passes();

}  // namespace stridec::schedule
