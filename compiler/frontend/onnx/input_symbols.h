// The names that a model gives to sizes of its inputs, and what `--dim` says about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>

#include "compiler/frontend/onnx/import.h"
#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"

namespace stridec::onnx {

// Exporters name dims "batch", "8*h8", "past + sequence", "floor(x/2)", or write any text at all. A text that
// parses to an expression means it if all its symbols can be had from some input; otherwise it is the name of
// one symbol.
class InputSymbols {
 public:
  InputSymbols(const Graph& graph, const ImportOptions& options);

  // The size of dim `position` of an input; one without a name, or with a placeholder for one ("?", "-1", "None", "*"), is
  // "x.0", "x.1", ...
  sym::Expr dim(const std::string& input, size_t position, const Dim& d);
  // A number that `--dim` has to give: the length of a sequence, the rank of a tensor.
  std::optional<int64_t> given(const std::string& name);

  // Throws a usage Error for a name of `--dim` that nothing has asked for.
  void check_flags() const;
  void set_ranges(sym::Facts& facts) const;

 private:
  sym::Expr symbol(const std::string& name);

  const ImportOptions& options_;
  std::unordered_set<sym::Expr, sym::ExprHash> given_;  // symbols that some input tells by itself
  std::set<std::string> used_;
};

}  // namespace stridec::onnx
