#include "cli/manifest_file.h"

#include "cli/artifact_file.h"
#include "cli/mapped_text.h"
#include "compiler/frontend/import.h"

namespace stridec::cli {

std::string read_manifest_text(const std::string& path) {
  const MappedText mapped(path);
  const std::string_view file = mapped.text();
  // A model is refused as the artifact that it is not, with what to do.
  if (!is_elf(file) && frontend::model_kind(file).empty()) return std::string(file);
  const package::ArtifactLayout layout = layout_of(file, path);
  return std::string(file.substr(layout.manifest_offset, layout.manifest_bytes));
}

}  // namespace stridec::cli
