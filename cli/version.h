// What `stridec --version` prints.
#pragma once

#include <string>

namespace stridec::cli {

// "stridec 0.1.0", then lines with the revision of the sources, the versions of LLVM and ONNX, and those of
// the formats.
std::string version_text();

}  // namespace stridec::cli
