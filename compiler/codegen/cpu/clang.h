// clang and LLVM inside the process: header-free C++ text in, one relocatable object out.
//
// Every call owns its compiler, its context and an in-memory file system, so calls run in parallel; equal
// arguments give equal bytes, whatever the number of threads. Nothing is read from disk: the source is the
// whole translation unit.
//
// Arithmetic keeps IEEE meaning: NaN, infinity and signed zeros are honoured, nothing is reassociated, no
// trap or errno is observable. a * b + c is contracted where fuse_multiply_add says so; a source overrides it
// with
// `#pragma clang fp contract(off)` and permits more with `#pragma clang fp reassociate(on)`. Pointers of
// different types may alias; `__restrict` says where they do not. There is no libm and no compiler-rt in an
// artifact: f16 and bf16 conversions on CPUs without the instruction, exp and the like are the source's own
// business. Of libc, memcpy, memmove, memset and memcmp may be implied.
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
  // Every load and store calls __tsan_read4(address) or its like of ThreadSanitizer's interface, which the source has:
  // for tests that look for races.
  bool tell_accesses = false;
};

// Seconds spent.
struct CompileTimes {
  double frontend = 0, optimize = 0, emit = 0;
};

// Symbols are hidden unless the source says otherwise; each function and object has a section of its own.
// Throws a kToolchain Error with the compiler's diagnostics, also when the compiler itself crashes. `name`
// appears in diagnostics.
std::string compile_to_object(std::string_view name, std::string_view source, const CompileOptions& options,
                              CompileTimes* times = nullptr);
// The same as assembly text, for `inspect`.
std::string compile_to_assembly(std::string_view name, std::string_view source,
                                const CompileOptions& options);
// A word for all that determines an object's bytes, this compiler included: the key of an ObjectCache.
std::string object_key(std::string_view source, const CompileOptions& options);
// compile_to_object(), but for what the cache has. True goes to `stored` where it had not.
std::string cached_object(const ObjectCache& cache, std::string_view name, std::string_view source,
                          const CompileOptions& options, std::atomic<bool>* stored = nullptr);

// The instruction sets that code for this CPU may use, by LLVM's names, sorted ("avx", "avx2", "bmi", ...).
std::vector<std::string> cpu_features(std::string_view cpu);

}  // namespace stridec::codegen
