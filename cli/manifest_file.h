// The manifest of an artifact, or one that lies in a file of its own.
#pragma once

#include <string>

namespace stridec::cli {

// The manifest's text as the file has it, which package::read_manifest parses. What the file is, its first bytes say.
// Throws Error where it cannot be read, or is a library that is no whole artifact.
std::string read_manifest_text(const std::string& path);

}  // namespace stridec::cli
