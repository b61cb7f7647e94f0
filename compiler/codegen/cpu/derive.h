// Programs that compute derived parameters (packed, rounded, transposed, folded ones) again after a user has
// replaced parameters of an artifact.
//
//   prepack                             derivation of the program
//     nest 4 pack w.panels       ->       nest 4 pack w.panels
//   steps                                 (nests of constants alone are left out)
//     nest 0 matmul+add
//
// They run on the host for CPU and GPU variants alike, before the next run. Their code is for the oldest
// x86-64 that artifacts run on, and the same code computes the first values at compile time, so parameters
// that are replaced by equal ones give equal bytes.
#pragma once

#include <optional>

#include "compiler/base/target.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// The target of derivations.
CpuTarget derivation_target();

// Marks the derived parameters of the program as replaceable and returns their derivation, emitted and with
// its memory planned; none if nothing is derived. The places of parameters are those of the given
// program until copy_places().
std::optional<Variant> derivation_of(loop::Program& program);

// Gives the derivation's parameters the offsets that schedule::plan_weights has given to the program's.
void copy_places(const loop::Program& program, Variant& derivation);

}  // namespace stridec::codegen::cpu
