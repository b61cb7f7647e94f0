// LLD in process: links objects into one shared object, all in memory where /proc is mounted.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::codegen {

struct LinkInput {
  std::string name;  // for messages
  std::string_view object;
  bool if_needed = false;  // include it only if another input refers to it
};

// What the library has for profilers and debuggers.
enum class Symbols {
  kNone,
  kNames,  // a table of symbols
  kLines,  // and the lines of the sources
};

struct LinkOptions {
  std::string soname;
  Symbols symbols = Symbols::kNone;
};

// Links only against the stub of libc.so.6 (libc.map), so DT_NEEDED is libc.so.6 alone and the required glibc
// version does not depend on the build machine. Unreferenced sections are removed; an unresolved symbol is an
// error. Equal arguments give equal bytes. Concurrent calls are serialised (LLD has global state). Throws a
// kToolchain Error with the linker's messages.
std::string link_shared(std::span<const LinkInput> inputs, const LinkOptions& options);

}  // namespace stridec::codegen
