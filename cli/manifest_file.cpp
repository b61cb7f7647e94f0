#include "cli/manifest_file.h"

#include "cli/mapped_text.h"
#include "compiler/base/diagnostic.h"
#include "compiler/package/elf.h"

namespace stridec::cli {

std::string read_manifest_text(const std::string& path) {
  const MappedText mapped(path);
  const std::string_view file = mapped.text();
  if (!file.starts_with("\x7f"
                        "ELF"))
    return std::string(file);
  try {
    const auto layout = package::artifact_layout(file);
    return std::string(file.substr(layout.manifest_offset, layout.manifest_bytes));
  } catch (Error& error) {
    error.diagnostic.where.file = path;
    throw;
  }
}

}  // namespace stridec::cli
