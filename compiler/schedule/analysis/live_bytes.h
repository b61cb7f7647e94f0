// Bytes of arena buffers that are live at each step of a program, at typical sizes: an estimate of its peak
// for passes that compare two orders or decide what to keep.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// By position among the program's steps; `flow` is that of these steps.
std::vector<double> live_bytes(const loop::Program& program, const Flow& flow);
double peak_bytes(const loop::Program& program);

}  // namespace stridec::schedule
