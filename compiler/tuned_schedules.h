// Selects tuned schedules for the nests of a program, as the compile mode and the tuning database say.
#pragma once

#include "compiler/compilation.h"

namespace stridec {

// The time that one of `left` programs may be measured for, if `spent` seconds are used up.
double measuring_seconds(const Tuning& tuning, double spent, size_t left);

// Fills FunctionResult::tuned for the target. Does nothing unless the mode or a flag requests tuning.
// `seconds`: for measuring; 0: nothing is measured. `before_measuring`: see tune::Options.
schedule::Chosen tuned(const loop::Program& program, const CpuTarget& target, const CompileOptions& options,
                       double seconds, const std::function<void()>& before_measuring, bool first,
                       FunctionResult& made);
// Only one of several GPU variants is measured: the first that the GPU of this machine runs. `first`: this is
// the first variant.
schedule::Chosen tuned(const loop::Program& program, const GpuTarget& target, const CompileOptions& options,
                       double seconds, const std::function<void()>& before_measuring, bool first,
                       FunctionResult& made);

// The tuning section of the manifest.
package::TuningFacts tuning_facts(const FunctionResult& made);

}  // namespace stridec
