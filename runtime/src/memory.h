// Memory of a context: blocks that grow and never shrink, so that runs do not allocate at shapes that have
// occurred before.
#pragma once

#include "stridec/runtime.h"

namespace stridec::runtime {

constexpr int64_t kPage = 4096, kHugePage = 2 << 20;

constexpr int64_t kAlignment = 64;
inline int64_t align_up(int64_t bytes) { return (bytes + kAlignment - 1) & -kAlignment; }

struct Allocator {
  void* (*allocate)(void* user, size_t bytes, size_t alignment);  // null: libc
  void (*release)(void* user, void* memory, size_t bytes);
  void* user;
  bool huge_pages;
  uint64_t allocations;
};

struct Block {
  char* data;
  int64_t bytes;
};

// Grows block to at least `bytes`, 64-byte aligned. The contents are lost if it grows. False: out of memory,
// and block is empty.
bool grow(Allocator& allocator, Block& block, int64_t bytes);
void release(Allocator& allocator, Block& block);

// Maps the pages of [begin, begin + bytes) and, for kWrite, makes them private to the process. The contents
// stay.
enum class Access { kRead, kWrite };
void populate(const char* begin, int64_t bytes, Access access);

// Zeroed arrays for internal use, freed with free().
template <class T>
T* make_array(int64_t count);

}  // namespace stridec::runtime

#include <stdlib.h>

template <class T>
T* stridec::runtime::make_array(int64_t count) {
  return static_cast<T*>(calloc(count > 0 ? static_cast<size_t>(count) : 1, sizeof(T)));
}
