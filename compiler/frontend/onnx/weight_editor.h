// Writes a copy of an ONNX file with other values of its weights. Nodes, names, metadata, opsets, and fields
// that this build does not know, stay as they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

// Where a written file has its tensors.
enum class DataPlace : uint8_t { kAsBefore, kEmbedded, kExternal };

class WeightEditor {
 public:
  // Throws Error, as read_model does, and "over-budget" for a file of 2 GB or more.
  explicit WeightEditor(const std::filesystem::path& model);
  ~WeightEditor();
  WeightEditor(const WeightEditor&) = delete;
  WeightEditor& operator=(const WeightEditor&) = delete;

  struct Weight {
    int elem_type = 0;
    std::vector<int64_t> dims;
  };
  // What can be replaced, by name: the initializers of the main graph, sparse ones included, and its Constant
  // nodes, by the name of their output.
  const std::map<std::string, Weight>& weights() const { return weights_; }

  // The paths of the model's files of external data.
  std::vector<std::string> data_files() const;

  // The weight as the file has it, row-major and little-endian.
  Bytes data(const std::string& name);

  // `bytes`: row-major and little-endian, of the weight's type and dims. A sparse weight becomes a dense one.
  void replace(const std::string& name, Bytes bytes);

  // kExternal moves initializers; tensors of attributes stay where they are, and parts of sparse tensors are
  // embedded. External data goes to one file beside `output` (data_path). Both files are written whole or not
  // at all. Returns the path of the data file; "": there is none.
  std::string write(const std::filesystem::path& output, DataPlace place);
  // "tuned.onnx.data" of "tuned.onnx".
  static std::string data_path(const std::filesystem::path& output);

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::map<std::string, Weight> weights_;
};

}  // namespace stridec::onnx
