#include "cli/manifest_file.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/package/elf.h"

namespace stridec::cli {

std::string read_manifest_text(const std::string& path) {
  std::string file = read_file(path);
  if (!file.starts_with("\x7f"
                        "ELF"))
    return file;
  try {
    const auto layout = package::artifact_layout(file);
    return file.substr(layout.manifest_offset, layout.manifest_bytes);
  } catch (Error& error) {
    error.diagnostic.where.file = path;
    throw;
  }
}

}  // namespace stridec::cli
