// LLD inside the process: objects in, one shared object out, all in memory.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::codegen {

struct LinkInput {
  std::string name;  // for messages
  std::string_view object;
  bool if_needed = false;  // part of the result only where another input refers to it
};

struct LinkOptions {
  std::string soname;
  bool strip = true;  // drop local symbols' names, which profilers show
};

// Links against the stand-in for libc.so.6 (libc.map) and nothing else, so DT_NEEDED is libc.so.6 alone and
// the glibc that the result asks for does not depend on the building machine. Sections that nothing refers to
// go away; an unresolved symbol is an error. Equal arguments give equal bytes. Calls from several threads
// wait for each other (LLD has global state). Throws a kToolchain Error with the linker's words.
std::string link_shared(std::span<const LinkInput> inputs, const LinkOptions& options);

}  // namespace stridec::codegen
