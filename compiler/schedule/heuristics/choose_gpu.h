// A schedule for every nest of a program, for one kind of GPU.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::schedule {

// Every nest gets its schedule: the one chosen for it, or its default (candidates.h).
void choose_gpu(loop::Program& program, const GpuTarget& target, const Chosen& chosen = {});

}  // namespace stridec::schedule
