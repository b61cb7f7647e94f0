// What `stridec --version` prints.
#pragma once

#include <string>

namespace stridec::cli {

// "stridec 0.1.0", then the revision of the sources, of LLVM and ONNX, and of the formats, on lines of their own.
std::string version_text();

}  // namespace stridec::cli
