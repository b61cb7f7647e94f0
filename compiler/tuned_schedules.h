// Which nests of a program get another schedule than their default, by a compile's mode and tuning database.
#pragma once

#include "compiler/compilation.h"

namespace stridec {

// Fills Compilation::tuned for the target. Nothing is chosen where neither the mode nor a flag asks for it.
// `before_measuring`: tune::Options.
schedule::Chosen tuned(const loop::Program& program, const CpuTarget& target, const CompileOptions& options,
                       const std::function<void()>& before_measuring, bool first, Compilation& made);
// Of several GPU variants, the first that the device at hand runs is measured. `first`: the variant is the first.
schedule::Chosen tuned(const loop::Program& program, const GpuTarget& target, const CompileOptions& options,
                       const std::function<void()>& before_measuring, bool first, Compilation& made);

// What the manifest says of it.
package::TuningFacts tuning_facts(const Compilation& made);

}  // namespace stridec
