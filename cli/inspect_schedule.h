// `stridec inspect --stage=schedule`: what was fused, what was not and why, and what each kernel could have run with.
#pragma once

#include "cli/output.h"
#include "compiler/compile.h"

namespace stridec::cli {

// Equal decisions are one line with their number; bytes are given at typical sizes, in JSON as an expression too.
int print_schedule(const Compilation& made, const Globals& globals);

}  // namespace stridec::cli
