// The head of the function that a kernel's text defines, which a compiler of C or CUDA reads later.
#pragma once

#include <string>
#include <vector>

#include "compiler/extend/rule.h"

namespace stridec::extend {

struct KernelHeader {
  struct Parameter {
    std::string name;
    Position at;
  };
  std::string function, result;  // result: the words before the name: "static void"
  Position at;
  std::vector<Parameter> parameters;
};

// Of the last function that the text defines; those before it are helpers of its own. Throws Error like
// parse_rules() if it defines none, or a parameter has no name.
KernelHeader parse_kernel_header(const std::string& text, const std::string& place);

}  // namespace stridec::extend
