// Reads named tensors from a file: safetensors, or the initializers of an ONNX model.
// https://huggingface.co/docs/safetensors/index#format
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/npy.h"
#include "compiler/base/dtype.h"

namespace stridec::cli {

struct FileTensor {
  DType dtype;
  std::vector<int64_t> shape;
  std::string_view bytes;  // row-major, in the mapped file
};

struct ParameterFile {
  std::shared_ptr<const void> owner;  // keeps the mapping alive
  std::map<std::string, FileTensor> tensors;
  std::map<std::string, std::string> metadata = {};  // "__metadata__" of a safetensors file
};

// A tensor that a file should have.
struct DeclaredTensor {
  std::string name, shape;  // "[33, 20]"
  DType dtype;
};

// Throws one Error for all tensors that the file lacks (unless `partial`) or has in another form.
void check_tensors(const ParameterFile& file, const std::vector<DeclaredTensor>& declared, bool partial,
                   const std::string& code, const std::string& help);

// Throws Error: unreadable, malformed.
ParameterFile read_parameters(const std::string& path);

// Writes a safetensors file, whole or not at all. `metadata`: its "__metadata__".
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& tensors,
                       const std::map<std::string, std::string>& metadata);

// Parses a whole safetensors file in memory, which may have any contents. The result has no owner.
ParameterFile parse_safetensors(std::string_view file);

}  // namespace stridec::cli
