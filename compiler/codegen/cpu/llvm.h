// What the files around LLVM share: clang.cpp, link.cpp and jit.cpp.
#pragma once

#include <string>
#include <string_view>

namespace stridec::codegen {

// Registers the one target and catches LLVM's fatal errors; before any other call, from any thread, as often
// as one likes.
void initialize_llvm();

// Collects the last words of LLVM's fatal errors on this thread while it lives.
struct FatalErrorScope {
  explicit FatalErrorScope(std::string* words);
  ~FatalErrorScope();
};

// Throws a kToolchain Error whose notes are the first lines of the tool's output. What these tools are given
// is our own code, so the help says that it is a defect of stridec.
[[noreturn]] void fail_toolchain(std::string code, std::string message, std::string_view output);

}  // namespace stridec::codegen
