// clang and LLVM in process: compiles header-free C++ text to one relocatable object.
//
// Every call has its own compiler, context and in-memory file system, so calls may run in parallel. Equal
// arguments give equal bytes, for any number of threads. Nothing is read from disk: the source is the whole
// translation unit.
//
// Arithmetic keeps IEEE semantics: NaN, infinity and signed zeros are honoured, nothing is reassociated, no
// trap or errno is observable. a * b + c is contracted if fuse_multiply_add is set; a source overrides it
// with `#pragma clang fp contract(off)` and permits more with `#pragma clang fp reassociate(on)`. Pointers of
// different types may alias; `__restrict` excludes it. An artifact has no libm and no compiler-rt: the source
// itself implements f16 and bf16 conversions for CPUs without the instruction, exp and the like. Of libc,
// only memcpy, memmove, memset and memcmp may be called implicitly.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen/object_cache.h"

namespace stridec::codegen {

struct CompileOptions {
  std::string cpu = "x86-64-v3";  // CpuTarget::name and tune (compiler/base/target.h)
  std::string tune = "generic";
  int optimize = 3;  // 0 to 3
  bool fuse_multiply_add = true;
  // Instruments every load and store with a call of __tsan_read4(address) or another function of
  // ThreadSanitizer's interface, which the source defines: for tests that detect races.
  bool tell_accesses = false;
  bool c = false;      // the source is C (C23), not C++20
  bool lines = false;  // with tables of lines, in which the source has the name `name`
};

// In seconds.
struct CompileTimes {
  double frontend = 0, optimize = 0, emit = 0;
};

// Symbols are hidden unless the source says otherwise; each function and object has its own section. Throws a
// kToolchain Error with the compiler's diagnostics, also if the compiler crashes. `name` appears in
// diagnostics.
std::string compile_to_object(std::string_view name, std::string_view source, const CompileOptions& options,
                              CompileTimes* times = nullptr);
// The same as assembly text, for `inspect`.
std::string compile_to_assembly(std::string_view name, std::string_view source,
                                const CompileOptions& options);
// A hash of everything that determines an object's bytes, including this compiler: the key of an ObjectCache.
std::string object_key(std::string_view source, const CompileOptions& options);
// compile_to_object() through the cache. Sets `stored` to true if the object was not in the cache.
std::string cached_object(const ObjectCache& cache, std::string_view name, std::string_view source,
                          const CompileOptions& options, std::atomic<bool>* stored = nullptr);

// The instruction sets that code for this CPU may use, by LLVM's names, sorted ("avx", "avx2", "bmi", ...).
std::vector<std::string> cpu_features(std::string_view cpu);

}  // namespace stridec::codegen
