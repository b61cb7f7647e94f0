// The files in which a model keeps the data of its tensors.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "compiler/frontend/common/mapped_file.h"

namespace stridec::onnx {

using frontend::MappedFile;

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

}  // namespace stridec::onnx
