#include "memory.h"

#include <errno.h>
#include <sys/mman.h>

namespace stridec::runtime {
namespace {

// Blocks of at least this size are mapped separately, aligned to huge pages if requested.
constexpr int64_t kMapped = 1 << 20;

bool wants_huge(const Allocator& allocator, int64_t bytes) {
  return allocator.huge_pages && bytes >= kHugePage;
}

// Rounds up to whole huge pages if that adds at most an eighth: a tail of small pages costs a fault for each.
int64_t mapped_bytes(int64_t bytes, bool huge) {
  const int64_t whole = (bytes + kHugePage - 1) & -kHugePage;
  return huge && whole - bytes <= bytes / 8 ? whole : (bytes + kPage - 1) & -kPage;
}

char* map(int64_t bytes, bool huge) {
  int64_t size = mapped_bytes(bytes, huge);
  int64_t slack = huge ? kHugePage : 0;
  void* memory = mmap(nullptr, static_cast<size_t>(size + slack), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(memory);
  if (!huge) return begin;
  auto address = reinterpret_cast<uintptr_t>(begin);
  char* aligned = begin + ((address + kHugePage - 1) / kHugePage * kHugePage - address);
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  char* end = aligned + size;
  char* mapped_end = begin + size + slack;
  if (end != mapped_end) munmap(end, static_cast<size_t>(mapped_end - end));
  madvise(aligned, static_cast<size_t>(size), MADV_HUGEPAGE);  // only advice: failure is harmless
  return aligned;
}

}  // namespace

bool grow(Allocator& allocator, Block& block, int64_t bytes) {
  if (bytes <= block.bytes) return true;
  if (bytes > INT64_MAX / 2) return false;
  bytes = align_up(bytes);
  // The contents of the old block are not needed, so it is freed first: the peak is one block, not two.
  release(allocator, block);
  void* memory = nullptr;
  if (allocator.allocate) {
    memory = allocator.allocate(allocator.user, static_cast<size_t>(bytes), kAlignment);
  } else if (bytes >= kMapped) {
    memory = map(bytes, wants_huge(allocator, bytes));
  } else if (posix_memalign(&memory, kAlignment, static_cast<size_t>(bytes)) != 0) {
    memory = nullptr;
  }
  if (!memory) return false;
  ++allocator.allocations;
  block = {static_cast<char*>(memory), bytes};
  return true;
}

void populate(const char* begin, int64_t bytes, Access access) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
  if (bytes <= 0) return;
  auto first = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{kPage - 1};
  char* page = const_cast<char*>(begin) - (reinterpret_cast<uintptr_t>(begin) - first);
  const auto size = static_cast<size_t>(begin + bytes - page);
  if (madvise(page, size, access == Access::kWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ||
      errno != EINVAL)
    return;
  // Before Linux 5.14: touch each page, and only the given bytes.
  volatile char* at = const_cast<char*>(begin);
  for (volatile char* end = at + bytes; at < end;
       at += kPage - (reinterpret_cast<uintptr_t>(at) & (kPage - 1))) {
    const char value = *at;
    if (access == Access::kWrite) *at = value;
  }
}

void release(Allocator& allocator, Block& block) {
  if (!block.data) return;
  if (allocator.allocate)
    allocator.release(allocator.user, block.data, static_cast<size_t>(block.bytes));
  else if (block.bytes >= kMapped)
    munmap(block.data, static_cast<size_t>(mapped_bytes(block.bytes, wants_huge(allocator, block.bytes))));
  else
    free(block.data);
  block = {nullptr, 0};
}

}  // namespace stridec::runtime
