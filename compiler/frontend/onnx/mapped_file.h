// Read-only memory mappings of the model file and its external data files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace stridec::onnx {

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

// Maps a file named by the user. Throws Error "unreadable" (missing, a folder, permission).
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

// Where the external data of a model may be.
struct DataFolders {
  std::filesystem::path given;  // of the path that the user gave; "": the current folder
  std::filesystem::path real;   // of the file that this path leads to, without links
  std::filesystem::path blobs;  // of the hub's cache that `given` is a snapshot in; "": it is in none

  DataFolders() = default;
  explicit DataFolders(std::filesystem::path given);  // `given` alone, and its hub's cache
  static DataFolders of_model(const std::filesystem::path& model);
};

// Maps a file named by the model. `location` is untrusted. It is looked up in `given`, then in `real`, and
// must be a regular file that is, after following links, in one of the folders or below; without links on
// the way it is opened without following any. The file must have no second hard link (which could expose
// another user's file). Throws Error "external-data" with the requested location; the caller adds the tensor.
std::shared_ptr<const MappedFile> map_beneath(const DataFolders& folders, const std::string& location);

// Zero-filled memory that is allocated when read. Throws Error "over-budget" if there is not enough address
// space.
std::shared_ptr<const MappedFile> map_zeros(size_t size);

}  // namespace stridec::onnx
