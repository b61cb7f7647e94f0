#include "cli/artifact_file.h"

#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/import.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
namespace {

bool is_manifest(std::string_view file, const std::string& path) {
  if (!file.starts_with('{')) return false;
  try {
    package::read_manifest(std::string(file), path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What to do with a file that is not an artifact; empty if it is unknown.
std::string what_to_do(std::string_view file, const std::string& path) {
  const std::string library = std::filesystem::path(path).replace_extension(".so").string();
  if (is_manifest(file, path))
    return cat("it is the manifest of an artifact: name the library, '", library, "'");
  const std::string model = frontend::model_kind(file);
  if (!model.empty())
    return cat("it is ", model, ": compile it first, as by 'stridec compile ", path, " -o ", library, "'");
  return "";
}

}  // namespace

bool is_elf(std::string_view file) {
  return file.starts_with(
      "\x7f"
      "ELF");
}

package::ArtifactLayout layout_of(std::string_view file, const std::string& path) {
  try {
    return package::artifact_layout(file);
  } catch (Error& error) {
    error.diagnostic.where.file = path;
    if (!is_elf(file)) error.diagnostic.help = what_to_do(file, path);
    throw;
  }
}

}  // namespace stridec::cli
