// Files as read-only memory: the model itself, and the external data that it names.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace stridec::onnx {

// A file that shrinks while it is mapped raises SIGBUS on access; nothing can be promised about files that
// others write.
struct MappedFile {
  std::span<const std::byte> bytes;

  MappedFile(const std::byte* data, size_t size) : bytes(data, size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
};

// A file that the user named. Throws Error "unreadable" (missing, a folder, permission).
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

// A file that the model named: `location` is data, so it may only lead to a regular file below `folder`,
// through no symbolic link, and not to a file that has a second name (a hard link could be another user's
// file). Throws Error "external-data" with what was asked for; the caller adds the tensor.
std::shared_ptr<const MappedFile> map_beneath(const std::filesystem::path& folder,
                                              const std::string& location);

// Zeros that take memory only where they are read. Throws Error "over-budget" if there is no address space
// for them.
std::shared_ptr<const MappedFile> map_zeros(size_t size);

}  // namespace stridec::onnx
