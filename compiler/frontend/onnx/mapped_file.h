// Read-only memory mappings of the model file and its external data files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace stridec::onnx {

// If another process truncates the file while it is mapped, an access raises SIGBUS.
struct MappedFile {
  std::span<const std::byte> bytes;

  MappedFile(const std::byte* data, size_t size) : bytes(data, size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
};

// Maps a file named by the user. Throws Error "unreadable" (missing, a folder, permission).
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

// Maps a file named by the model. `location` is untrusted: it must lead to a regular file below `folder`,
// without symbolic links, and the file must have no second hard link (which could expose another user's
// file). Throws Error "external-data" with the requested location; the caller adds the tensor.
std::shared_ptr<const MappedFile> map_beneath(const std::filesystem::path& folder,
                                              const std::string& location);

// Zero-filled memory that is allocated when read. Throws Error "over-budget" if there is not enough address
// space.
std::shared_ptr<const MappedFile> map_zeros(size_t size);

}  // namespace stridec::onnx
