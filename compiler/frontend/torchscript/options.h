// What the command line says of an import.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/user_operators.h"

namespace stridec::torchscript {

// `--dim name=lower..upper%multiple`.
struct DimRange {
  std::optional<int64_t> lower, upper;
  int64_t multiple = 1;
  bool fixed() const { return lower && upper == lower; }
};
// `--shape name=f32[batch,3]`.
struct InputType {
  std::optional<DType> dtype;      // none: f32
  std::vector<std::string> sizes;  // a number, or the name of a size
};

struct ImportOptions {
  std::map<std::string, DimRange> dims;
  std::map<std::string, InputType> shapes;
  std::map<std::string, std::vector<int64_t>> input_values;  // the only elements of inputs of integers
  graph::Builder::Replaceable replaceable;  // which weights may be replaced after compilation; empty: none
  bool sizes_stay_open = false;             // sizes that `dims` fixes stay symbols
  std::set<std::string>* absent = nullptr;  // frontend::ImportOptions
  const graph::UserOperators* operators = nullptr;  // likewise
  std::string method = "forward";
};

}  // namespace stridec::torchscript
