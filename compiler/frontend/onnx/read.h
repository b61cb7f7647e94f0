// Reads an ONNX file into a Model. Start reading this folder here.
#pragma once

#include <filesystem>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/model.h"
#include "compiler/graph/user_operators.h"

namespace stridec::onnx {

struct ReadOptions {
  std::filesystem::path external_data;    // folder of external data; empty: the model file's folder
  bool missing_weights_are_zero = false;  // to inspect a model without its weight files
  // Operators of the user, which come before the model's own functions of their names; null: none.
  const graph::UserOperators* operators = nullptr;
};

// Reads and checks an .onnx file (model.h states the guarantees). Needs little memory beyond the mapped file,
// unless the file stores weights as typed or packed lists. Throws Error: unreadable, malformed, unsupported
// or over budget; where.file is set.
Model read_model(const std::filesystem::path& path, const ReadOptions& options = {});

// All findings of ONNX's checker about the nodes and of the check of the opset imports. Empty if there are
// none.
std::vector<Diagnostic> check_model(const Model& model);

}  // namespace stridec::onnx
