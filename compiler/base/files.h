// Files as users expect them: read whole, written whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stridec {

// Throws Error (kUnreadable) naming the file and the system's reason.
std::string read_file(const std::string& path);

// Throws Error (kUnreadable) if something is at `path` that a file must not take the place of: a folder, a device, a pipe.
void check_replaceable(const std::string& path);

// A file under construction beside its final name: commit() renames it there, anything else removes it.
// Errors are kUnreadable (permission, missing folder) or kOverBudget (disk full).
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

// Unlinks every UnfinishedFile of the process; safe in a signal handler.
void remove_unfinished_files();

}  // namespace stridec
