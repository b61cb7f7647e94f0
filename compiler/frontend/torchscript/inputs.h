// The arguments of forward() as inputs of the graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/torchscript/evaluator.h"
#include "compiler/frontend/torchscript/options.h"

namespace stridec::torchscript {

class Inputs {
 public:
  Inputs(Evaluator& evaluator, const ImportOptions& options, const Archive& archive);

  // The values of all parameters after `self`. Throws a usage Error that lists the inputs whose types are not
  // known, or for options that name no input or size.
  Arguments make(const Function& function);

  struct Input {
    std::string name;
    aten::Tensor tensor;
    graph::ValueId initial;
  };
  const std::vector<Input>& tensors() const { return tensors_; }

 private:
  struct Missing {
    std::string name, type;
  };

  Value make_value(const std::string& name, const Expression& type, const Expression* default_value,
                   const ItemRef& sample);
  Value make_tensor(const std::string& name, const InputType& type);
  Value make_number(const std::string& name, const std::string& type);
  Value make_items(const std::string& name, const Expression& type, const ItemRef& sample);
  std::optional<InputType> type_of(const std::string& name, const ItemRef& sample);
  std::vector<std::string> children(const std::string& name) const;
  bool is_named(const std::string& name) const;
  void check_options();
  sym::Expr size(const std::string& text);

  Evaluator& e_;
  const ImportOptions& options_;
  std::vector<ItemRef> samples_;  // of a traced module, by parameter
  std::vector<Missing> missing_;
  graph::NamedSizes sizes_;
  std::set<std::string> used_;  // names of inputs
  std::vector<Input> tensors_;
};

}  // namespace stridec::torchscript
