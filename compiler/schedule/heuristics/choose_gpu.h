// Chooses a schedule for every nest of a program, for one kind of GPU.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::schedule {

// Gives every nest its schedule: the one in `chosen`, or its default (candidates.h).
void choose_gpu(loop::Program& program, const GpuTarget& target, const Chosen& chosen = {});

}  // namespace stridec::schedule
