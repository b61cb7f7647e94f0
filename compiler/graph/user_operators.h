// The interface through which frontends reach operators that the user declares (compiler/extend), and what
// they note about undeclared operators.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::graph {

// A node of the model whose operator is the user's.
struct OperatorCall {
  struct Argument {
    std::string name;  // "": the next input or, of what is not a tensor, the next attribute
    // At most one of the two; neither: the argument is left out.
    std::optional<ValueId> tensor = {};
    std::optional<AttributeValue> value = {};
  };
  std::string name;  // "acme::Rotary"
  std::vector<Argument> arguments;
  size_t outputs = 1;  // that the node has
};

class UserOperators {
 public:
  virtual ~UserOperators() = default;
  virtual bool has(std::string_view name) const = 0;
  // The outputs. Throws Error (kDoesNotFit) with the reason.
  virtual std::vector<ValueId> build(Builder& builder, const OperatorCall& call) const = 0;
};

// A node whose operator neither the compiler nor the user knows, for a draft of its declaration.
struct UnknownCall {
  struct Argument {
    std::string name;               // "": positional
    std::optional<Type> type = {};  // of a tensor, if it is known
    bool tensor = false;
    std::optional<AttributeValue> value = {};
  };
  std::string name, node;
  std::vector<Argument> arguments;
  std::vector<std::optional<Type>> results;  // as the model declares them
};

}  // namespace stridec::graph
