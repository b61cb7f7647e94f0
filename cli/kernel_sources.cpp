#include "cli/kernel_sources.h"

#include <filesystem>

#include "cli/written_files.h"
#include "compiler/base/files.h"

namespace stridec::cli {

namespace fs = std::filesystem;

std::string kernel_folder(const CompileOptions& options, const std::string& artifact) {
  const auto given = options.settings.find("symbols");
  if (given == options.settings.end() || given->second != "lines") return "";
  return folder_beside(artifact, ".kernels", "the sources of kernels");
}

void write_kernel_sources(const Compilation& made, const std::string& folder) {
  if (folder.empty()) return;
  // As source_file() names them.
  make_folder(folder, [](const fs::path& file) {
    return file.filename().string().starts_with("k_") &&
           (file.extension() == ".cpp" || file.extension() == ".c");
  });
  for (const codegen::cpu::BuiltKernel& kernel : made.built.kernels) {
    const auto [name, text] = codegen::cpu::source_file(kernel);
    write_file((fs::path(folder) / name).string(), text);
  }
}

}  // namespace stridec::cli
