// `stridec inspect --stage=schedule`: what was fused, what was not and why, and what each kernel could have run with.
#pragma once

#include "cli/output.h"
#include "compiler/compile.h"

namespace stridec::cli {

// What was fused is one line for equal decisions, with their number; two kernels that stayed separate are one line with their
// nodes and what each rule said of them. Kernels are those of the manifest, by the same names. Bytes are given at typical
// sizes, which the text begins with; JSON has all decisions, their bytes as expressions too, and all nodes.
int print_schedule(const Compilation& made, const Globals& globals);

}  // namespace stridec::cli
