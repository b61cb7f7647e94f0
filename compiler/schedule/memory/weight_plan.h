// Places the weights of a module's programs in one section of the artifact.
#pragma once

#include <span>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Gives every weight that a run reads a byte offset (a multiple of 64) in the artifact's weights, in the
// order of first use, and sets Program::weight_bytes. The programs share one section: weights with equal
// bytes get the same place. Weights that only prepack nests read keep offset -1. Replaceable parameters
// follow, those of one name in one place (loop/module_values.h), from Program::replaceable_begin to the end.
// So do the parameters that the programs derive from them by equal nests.
//
// kByAddress is for variants of one model: weights at different addresses are equal only if they were packed
// equally, and only packed ones are compared. kByContents compares all.
enum class EqualWeights { kByAddress, kByContents };
void plan_weights(std::span<loop::Program* const> programs, EqualWeights equal = EqualWeights::kByAddress);

}  // namespace stridec::schedule
