// File -> Model. The first file to read in this folder.
#pragma once

#include <filesystem>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

struct ReadOptions {
  std::filesystem::path external_data;    // folder of external data; empty: the model's own
  bool missing_weights_are_zero = false;  // for looking at a structure whose weights are elsewhere
};

// Reads and checks an .onnx file (model.h says what holds afterwards). Memory beyond the mapped file is small
// unless the file stores weights as typed or packed lists. Throws Error: unreadable, malformed, unsupported
// or over budget; where.file is set.
Model read_model(const std::filesystem::path& path, const ReadOptions& options = {});

// What ONNX's checker says about every node, what the opset imports say, all at once. Empty: nothing is
// wrong.
std::vector<Diagnostic> check_model(const Model& model);

}  // namespace stridec::onnx
