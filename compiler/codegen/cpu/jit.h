// Compiled objects as functions of this process: for packing weights at compile time, for tests and for the
// tuner.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace stridec::codegen {

// Holds code until it is destroyed. Objects see each other's symbols, and of the process memcpy, memmove,
// memset and memcmp alone, which is what an artifact may imply too. Calls from several threads are fine.
class Jit {
 public:
  Jit();
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  // Takes a copy. Throws a kToolchain Error when it is no object or defines a symbol twice.
  void add_object(std::string_view object);
  // The address of a symbol, hidden ones included. Throws a kToolchain Error naming what is undefined.
  void* lookup(const std::string& symbol);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stridec::codegen
