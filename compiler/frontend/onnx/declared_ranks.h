// The number of dims that a graph says one of its values has: by a declaration (graph outputs, value_info),
// or by what the operators that read the value need.
//
// Squeeze without axes and If give ranks that depend on sizes. Where these are open until the run, the rank
// that the rest of the model was made for decides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

class DeclaredRanks {
 public:
  // The dims of a value that is imported already, or of an initializer; nothing for others. A dim without a
  // value is a size that is not known.
  using Imported = std::function<std::optional<std::vector<Dim>>(const std::string& name)>;

  explicit DeclaredRanks(const Graph& graph) : graph_(graph) {}

  std::optional<int64_t> of(const std::string& name, const Imported& imported);

 private:
  using Reader = std::pair<const Node*, size_t>;  // a node and which of its inputs

  void index();
  std::optional<int64_t> search(const std::string& name, const Imported& imported);
  std::optional<int64_t> needed_by(const Reader& reader, const Imported& imported);

  const Graph& graph_;
  bool indexed_ = false;
  int nodes_left_ = 0;
  std::unordered_map<std::string, int64_t> declared_;
  std::unordered_map<std::string, std::vector<Reader>> readers_;
};

}  // namespace stridec::onnx
