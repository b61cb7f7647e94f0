// The rank of a value, as the graph declares it (graph outputs, value_info), or as the operators that read
// the value require it.
//
// Squeeze without axes and If have results whose rank depends on sizes. If these are known only at run time,
// the rank that the rest of the model expects decides.
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
  // The dims of an imported value or an initializer; none for other names. A dim without a value is an
  // unknown size.
  using Imported = std::function<std::optional<std::vector<Dim>>(const std::string& name)>;

  explicit DeclaredRanks(const Graph& graph) : graph_(graph) {}

  std::optional<int64_t> of(const std::string& name, const Imported& imported);

 private:
  using Reader = std::pair<const Node*, size_t>;  // a node and the index of its input

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
