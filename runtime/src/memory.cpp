#include "memory.h"

#include <sys/mman.h>

namespace stridec::runtime {
namespace {

constexpr int64_t kHugePage = 2 << 20;

// From here on memory comes in whole pages of its own, on a huge-page boundary if that is wanted.
constexpr int64_t kMapped = 1 << 20;

int64_t mapped_bytes(int64_t bytes) { return (bytes + 4095) & -4096; }

char* map(int64_t bytes, bool huge) {
  int64_t size = mapped_bytes(bytes);
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
  madvise(aligned, static_cast<size_t>(size), MADV_HUGEPAGE);  // advice: failing is fine
  return aligned;
}

}  // namespace

bool grow(Allocator& allocator, Block& block, int64_t bytes) {
  if (bytes <= block.bytes) return true;
  if (bytes > INT64_MAX / 2) return false;
  bytes = align_up(bytes);
  // What the old block holds is not needed, so it goes first: the peak is one block, not two.
  release(allocator, block);
  void* memory = nullptr;
  if (allocator.allocate) {
    memory = allocator.allocate(allocator.user, static_cast<size_t>(bytes), kAlignment);
  } else if (bytes >= kMapped) {
    memory = map(bytes, allocator.huge_pages && bytes >= kHugePage);
  } else if (posix_memalign(&memory, kAlignment, static_cast<size_t>(bytes)) != 0) {
    memory = nullptr;
  }
  if (!memory) return false;
  ++allocator.allocations;
  block = {static_cast<char*>(memory), bytes};
  return true;
}

void release(Allocator& allocator, Block& block) {
  if (!block.data) return;
  if (allocator.allocate)
    allocator.release(allocator.user, block.data, static_cast<size_t>(block.bytes));
  else if (block.bytes >= kMapped)
    munmap(block.data, static_cast<size_t>(mapped_bytes(block.bytes)));
  else
    free(block.data);
  block = {nullptr, 0};
}

}  // namespace stridec::runtime
