// What the command line says of an import.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/named_sizes.h"
#include "compiler/graph/user_operators.h"
#include "compiler/ops/composite/torch_random.h"

namespace stridec::torchscript {

// `--shape name=f32[batch,3]`.
struct InputType {
  std::optional<DType> dtype;      // none: f32
  std::vector<std::string> sizes;  // a number, or the name of a size
};

struct ImportOptions {
  std::vector<graph::SizeRange> dims;
  std::map<std::string, InputType> shapes;
  std::map<std::string, std::vector<int64_t>> input_values;  // the only elements of inputs of integers
  graph::Builder::Replaceable replaceable;  // which weights may be replaced after compilation; empty: none
  bool sizes_stay_open = false;             // sizes that `dims` fixes stay symbols
  std::set<std::string>* absent = nullptr;  // frontend::ImportOptions
  const graph::UserOperators* operators = nullptr;  // likewise
  std::string method = "forward";
  std::optional<ops::TorchGenerator> torch_random;  // frontend::ImportOptions
};

}  // namespace stridec::torchscript
