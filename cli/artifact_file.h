// The layout of an artifact's file, with errors that say what another file is.
#pragma once

#include <string>
#include <string_view>

#include "compiler/package/elf.h"

namespace stridec::cli {

bool is_elf(std::string_view file);

// The layout of the file at `path`, which is in memory. Throws a kMalformed Error that names the path; if the
// file is a model or a manifest, it says so and what to do.
package::ArtifactLayout layout_of(std::string_view file, const std::string& path);

}  // namespace stridec::cli
