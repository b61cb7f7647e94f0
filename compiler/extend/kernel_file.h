// Kernels of the user for operations that the compiler knows (--kernels): a file declares each as an
// operator with a kernel in C, and the operations that it computes, which are its pattern and its reference.
#pragma once

#include <string>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {

struct OwnKernel {
  UserOperator op;   // its body is a kernel, its reference the operations
  Rule rule;         // the pattern, without a replacement
  std::string path;  // of its file
  std::string cpu;   // the weakest processor that runs it; "": any
};

struct KernelFile {
  std::string path, name, sha256;
  std::vector<OwnKernel> kernels;
};

// Throws Error kMalformed, code "bad-operator", with the file and a JSON pointer.
KernelFile parse_kernels(const std::string& text, const std::string& path);
KernelFile read_kernels(const std::string& path);
// The .json files of a folder, by name. Throws Error kUnreadable if there is no such folder, and kUsage if it
// has none.
std::vector<std::string> kernel_files(const std::string& folder);

}  // namespace stridec::extend
