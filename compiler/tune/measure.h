// Times built kernels against each other in a child process. A crash or a hang is a possible result.
//
// Each round runs every kernel that is still in the race once (short ones several times). The order rotates
// by one per round, so that drift of the machine and the cache contents left by the previous kernel affect
// all kernels equally. The time of a call is the thread time of its longest part, without time that other
// processes took. The figure of a kernel is the median over rounds of its time relative to the first kernel's
// in the same round. Memory is as in a run of the model: weights have a different address in every call,
// cycling through as many bytes as the model has, up to twice the last-level cache. Data that other kernels
// would just have produced stay in place.
//
// On a GPU a round runs each kernel many times, back to back like the launches of a graph, between two events
// of the device. Before the first round each kernel runs once on fresh memory; its results must equal those
// of the first kernel.
#pragma once

#include <vector>

#include "compiler/tune/estimate.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

class Gpu;

// Returns one outcome per subject. The subjects are all for the CPU, or all for this GPU. Float arrays are
// filled with random values in [-1, 1], integer arrays with random values in the range of the argument.
std::vector<Outcome> measure(const std::vector<Subject>& subjects, const MeasureOptions& options,
                             Gpu* gpu = nullptr);

}  // namespace stridec::tune
