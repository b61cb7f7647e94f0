// The artifact that `verify` compares with a model: the flags of its compilation, which the model is compiled
// with again, and its runs.
#pragma once

#include <string>
#include <vector>

#include "cli/first_difference.h"
#include "cli/library.h"
#include "compiler/compile.h"
#include "compiler/frontend/import.h"
#include "compiler/loop/program.h"

namespace stridec::cli {

// Reads --dim, --shape, --input-value, -O and --precision of the function's compilation from the artifact's
// manifest, which is at `path`.
void take_flags(const Library& artifact, const std::string& path, CompileOptions& options);

// The variant that runs, for code of this build to search, if the user names none.
void take_variant(const Library& artifact, CompileOptions& options);

// Throws for requested sizes that the artifact does not support.
void check_sizes(const std::vector<frontend::DimRange>& asked, const std::vector<frontend::DimRange>& served,
                 const loop::Program& program);

// Throws if the artifact keeps a state that the model has as an input: --state was left out.
void check_states(const Library& artifact, const loop::Program& reference);

// Runs the artifact. States start from their initial values, as in the interpreter's run.
Tensors run_artifact(Library& library, const Given& given);

std::vector<std::string> buffer_names(const loop::Program& program, const std::vector<loop::BufferId>& ids);

}  // namespace stridec::cli
