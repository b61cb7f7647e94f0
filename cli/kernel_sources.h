// `-O symbols=lines`: the sources that the tables of lines of an artifact name.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace stridec::cli {

// The folder of the sources of this artifact, NAME.kernels next to NAME.so; "" without the option. Fails
// before the work where something that is no folder has the name.
std::string kernel_folder(const CompileOptions& options, const std::string& artifact);
// Sources of an earlier compilation are removed. Without a folder, nothing is written.
void write_kernel_sources(const Compilation& made, const std::string& folder);

}  // namespace stridec::cli
