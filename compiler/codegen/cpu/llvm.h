// Shared by the files that use LLVM: clang.cpp, link.cpp and jit.cpp.
#pragma once

#include <string>
#include <string_view>

namespace stridec::codegen {

// Registers the target and a handler for LLVM's fatal errors. Call it before any other LLVM function, from
// any thread, any number of times.
void initialize_llvm();

// Collects the messages of LLVM's fatal errors on this thread during its lifetime.
struct FatalErrorScope {
  explicit FatalErrorScope(std::string* words);
  ~FatalErrorScope();
};

// Throws a kToolchain Error whose notes are the first lines of the tool's output. These tools process
// generated code only, so the help text calls it a defect of stridec.
[[noreturn]] void fail_toolchain(std::string code, std::string message, std::string_view output);

}  // namespace stridec::codegen
