// A schedule for every nest of a program, for one kind of GPU.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void choose_gpu(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
