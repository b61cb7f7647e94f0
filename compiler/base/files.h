// Whole-file reads, and writes that are complete or have no effect.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stridec {

// Throws Error (kUnreadable) with the file and the system's reason.
std::string read_file(const std::string& path);

// Throws Error (kUnreadable) if a file cannot be written to `path`: its folder is missing or may not be
// changed, or it is something that a file must not replace: a folder, a device, a pipe.
void check_replaceable(const std::string& path);

// A file that a command is about to write.
struct OutputFile {
  std::string path;  // "": it is not written
  std::string what;  // for messages: "the manifest"
  std::string help;  // how to choose another path: "choose another name: --output name.so"
};
// Fails before the work instead of after it. Throws Error as check_replaceable does; kUsage if an output
// would overwrite one of `inputs` (paths; "" is none), or two outputs are one file.
void check_outputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs);

// A file under construction, next to its final name. commit() renames it; otherwise the destructor removes
// it. Errors are kUnreadable (permission, missing folder) or kOverBudget (disk full).
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }
  void write(const void* bytes, size_t size);
  void commit();

 private:
  std::string path_, temporary_;
  int descriptor_ = -1;
  int slot_ = -1;
};

void write_file(const std::string& path, std::string_view contents);

// Deletes every UnfinishedFile of the process. Safe in a signal handler.
void remove_unfinished_files();

}  // namespace stridec
