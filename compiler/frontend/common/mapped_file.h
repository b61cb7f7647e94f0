// Read-only memory mappings of files, for every format.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace stridec::frontend {

// If another process truncates the file while it is mapped, an access raises SIGBUS.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::filesystem::path path;  // as it was opened; empty for memory

  MappedFile(const std::byte* data, size_t size, std::filesystem::path path = {})
      : bytes(data, size), path(std::move(path)) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
};

// Closes an open file at the end of a scope. Below 0: no file is open.
struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
};

// Maps a file named by the user. Throws Error "unreadable" (missing, a folder, permission).
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

// Maps the first `size` bytes of an open file, which may be closed afterwards. `name`: its path.
std::shared_ptr<const MappedFile> map_descriptor(int fd, size_t size, const std::string& name);

// Zero-filled memory that is allocated when read. Throws Error "over-budget" if there is not enough address
// space.
std::shared_ptr<const MappedFile> map_zeros(size_t size);

}  // namespace stridec::frontend
