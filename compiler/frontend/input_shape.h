// `--shape image=f32[batch,3,224,224]`: the type of an input, for formats that do not say it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::frontend {

struct InputShape {
  std::string name;
  std::optional<DType> dtype;      // none: f32
  std::vector<std::string> sizes;  // a number, or the name of a size
};

// Parses "image=batch,3,h,w", "image=1x3x224x224", "ids=i64[batch,time]" and "scale=f32[]". Throws a usage
// Error.
InputShape parse_input_shape(std::string_view text);

// "f32[batch,3,224,224]", which parse_input_shape reads after a name.
std::string to_string(const InputShape& shape);

}  // namespace stridec::frontend
