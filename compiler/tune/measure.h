// Built kernels timed against each other in a child process: a crash or a hang is a result like any other.
//
// Every round runs each kernel that is still in the race once (short ones several times), in an order that moves by one
// each round, so that drifts of the machine and what the kernel before leaves in caches meet all of them; a call takes what its longest part took of its thread, without what other processes took;
// and the figure of a kernel is the median over rounds of its time relative to the first
// kernel's in the same round. Memory is as in a run of the model: weights lie somewhere else at every call, as many
// as the model has up to twice the last-level cache; what other kernels would just have made stays where it is.
//
// On a GPU a round runs each kernel many times, one launch behind the other as a graph's are, between two events of
// the device; and before the first round it runs once on fresh memory, whose contents have to be the first kernel's.
#pragma once

#include <vector>

#include "compiler/tune/estimate.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {

class Gpu;

// One outcome for each subject, which are all code for the CPU, or all for this GPU. Arrays of floats are filled with
// random values in [-1, 1], arrays of integers with random values in the range of the argument.
std::vector<Outcome> measure(const std::vector<Subject>& subjects, const MeasureOptions& options,
                             Gpu* gpu = nullptr);

}  // namespace stridec::tune
