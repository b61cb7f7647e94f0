// Maps the dim names of a model's inputs to symbols, subject to `--dim`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>

#include "compiler/frontend/onnx/import.h"
#include "compiler/graph/named_sizes.h"

namespace stridec::onnx {

// Exporters name dims "batch", "8*h8", "past + sequence", "floor(x/2)", or with arbitrary text. Text that
// parses as an expression denotes that expression if each of its symbols is by itself a dim of some input;
// otherwise the whole text names one symbol.
class InputSymbols {
 public:
  InputSymbols(const Graph& graph, const ImportOptions& options);

  // The size of dim `position` of an input. A dim without a name, or with a placeholder ("?", "-1", "None",
  // "*"), is named "x.0", "x.1", ...
  sym::Expr dim(const std::string& input, size_t position, const Dim& d);
  // The value that `--dim` gives for the length of a sequence or the rank of a tensor; nothing if it gives
  // none.
  std::optional<int64_t> given(const std::string& name) { return sizes_.given(name); }

  const graph::NamedSizes& sizes() const { return sizes_; }

 private:
  graph::NamedSizes sizes_;
  std::unordered_set<sym::Expr, sym::ExprHash> given_;  // symbols that are a dim of some input by themselves
};

}  // namespace stridec::onnx
