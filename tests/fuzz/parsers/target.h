// Shared by the fuzz targets: an input is accepted, or refused with a sentence; anything else is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "compiler/base/diagnostic.h"

namespace stridec::fuzz {

template <class Read>
int refuse_or_take(Read&& read) {
  try {
    read();
  } catch (const Error& e) {
    if (e.diagnostic.kind == ErrorKind::kInternal || e.diagnostic.message.empty()) {
      std::fprintf(stderr, "%s: %s\n", e.diagnostic.code.c_str(), e.diagnostic.message.c_str());
      std::abort();
    }
  }
  return 0;
}

// The bytes under a path, for parsers of files.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("input", 0)) {
    if (descriptor_ < 0 || write(descriptor_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace stridec::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
