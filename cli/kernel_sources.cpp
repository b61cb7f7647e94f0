#include "cli/kernel_sources.h"

#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"

namespace stridec::cli {

namespace fs = std::filesystem;

std::string kernel_folder(const CompileOptions& options, const std::string& artifact) {
  const auto given = options.settings.find("symbols");
  if (given == options.settings.end() || given->second != "lines") return "";
  std::string folder = fs::path(artifact).replace_extension(".kernels").string();
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    fail(ErrorKind::kUnreadable, "no-folder",
         cat("the sources of kernels are written to the folder '", folder, "', and a file has this name"),
         "move it, or give the output another name");
  return folder;
}

void write_kernel_sources(const Compilation& made, const std::string& folder) {
  if (folder.empty()) return;
  fs::create_directories(folder);
  for (const fs::directory_entry& old : fs::directory_iterator(folder))
    if (old.path().filename().string().starts_with("k_")) fs::remove(old.path());
  for (const codegen::cpu::BuiltKernel& kernel : made.built.kernels) {
    const auto [name, text] = codegen::cpu::source_file(kernel);
    write_file((fs::path(folder) / name).string(), text);
  }
}

}  // namespace stridec::cli
