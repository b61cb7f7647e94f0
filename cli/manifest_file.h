// The manifest of an artifact, or one in a file of its own.
#pragma once

#include <string>

namespace stridec::cli {

// The text of the manifest in a library or a .json file; package::read_manifest parses it. The first bytes
// decide which of the two the file is. Throws Error if it cannot be read or is not a whole artifact.
std::string read_manifest_text(const std::string& path);

}  // namespace stridec::cli
