// Loads compiled objects as functions of this process: to pack weights at compile time, for tests and for the
// tuner.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace stridec::codegen {

// Holds code until it is destroyed. Objects see each other's symbols, and of the process only memcpy,
// memmove, memset and memcmp, the functions that artifacts may call implicitly too. Thread-safe.
class Jit {
 public:
  Jit();
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  // Copies the object. Throws a kToolchain Error if it is not an object or defines a symbol twice.
  void add_object(std::string_view object);
  // The address of a symbol, including hidden ones. Throws a kToolchain Error that names undefined symbols.
  void* lookup(const std::string& symbol);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stridec::codegen
