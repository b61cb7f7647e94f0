// Does the one-time work of a first run: maps pages of memory, weights and code, fills caches, and starts
// threads.
#include <link.h>
#include <sched.h>
#include <sys/mman.h>

#include "clock.h"
#include "context.h"
#include "context_api.h"

namespace stridec::runtime {
namespace {

// Maximum time that a part waits until the others have begun, each on its own thread.
constexpr int64_t kMeetNanoseconds = 5'000'000;

// Every cache line is read, which also brings weights into the caches if they fit.
constexpr int64_t kCacheLine = 64;

struct Warming {
  const stridec_context* context;
  int32_t parts;
  int64_t deadline;
  std::atomic<int32_t> begun;
};

// Calls `take` on one part's share of [begin, begin + bytes). Shares start at multiples of huge pages: two
// threads that fault the same huge page wait for each other.
template <class F>
void share(const char* begin, int64_t bytes, int32_t part, int32_t parts, F&& take) {
  const int64_t unit = ((bytes + parts - 1) / parts + kHugePage - 1) & -kHugePage;
  const int64_t from = part * unit, to = from + unit < bytes ? from + unit : bytes;
  if (from < to) take(begin + from, to - from);
}

void read_lines(const char* begin, int64_t bytes) {
  populate(begin, bytes, Access::kRead);
  for (const volatile char *at = begin, *end = begin + bytes; at < end; at += kCacheLine) (void)*at;
}

void warm_part(void* argument, int32_t part) {
  auto& w = *static_cast<Warming*>(argument);
  const stridec_context& c = *w.context;
  // Otherwise another thread would take the part of a thread that is still starting.
  w.begun.fetch_add(1, std::memory_order_relaxed);
  while (w.begun.load(std::memory_order_relaxed) < w.parts && now_ns() < w.deadline) sched_yield();

  auto write = [](const char* begin, int64_t bytes) { populate(begin, bytes, Access::kWrite); };
  for (const Block* block : {&c.arena, &c.staging}) share(block->data, block->bytes, part, w.parts, write);
  const stridec_abi_function& p = function_of(c);
  for (int32_t i = 0; i < p.output_count; ++i)
    if (c.frame->places[i] == Place::kDirect && c.frame->outputs[i]) {
      const int64_t bytes =
          compact_bytes(c.frame->dims_of[i], p.outputs[i].rank, byte_size(output_dtype(c, i)));
      share(static_cast<const char*>(c.frame->outputs[i]), bytes, part, w.parts, write);
    } else {
      share(c.frame->owned[i].data, c.frame->owned[i].bytes, part, w.parts, write);
    }
  const Bytes& weights = c.model->blob.weights;
  share(weights.data, static_cast<int64_t>(weights.size), part, w.parts, read_lines);
}

// Touches the segments that the linker placed: kernels and their constants. The segment of the weights is
// divided among the parts.
void populate_code(const stridec_model& model) {
  const char* base = artifact_base();
  auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(base);
  auto* segments = reinterpret_cast<const ElfW(Phdr)*>(base + header.e_phoff);
  for (int i = 0; i < header.e_phnum; ++i) {
    const char* begin = base + segments[i].p_vaddr;
    const auto bytes = static_cast<int64_t>(segments[i].p_memsz);
    const char* weights = model.blob.weights.data;
    if (segments[i].p_type == PT_LOAD && !(weights >= begin && weights < begin + bytes))
      populate(begin, bytes, Access::kRead);
  }
}

}  // namespace

stridec_status context_warm_up_function(stridec_context* c, int32_t function, const stridec_tensor* inputs,
                                        size_t input_count, const stridec_tensor* outputs,
                                        size_t output_count) {
  if (!c) return STRIDEC_INVALID_ARGUMENT;
  InUse use(*c);
  if (!use) return STRIDEC_BUSY;
  stridec_status status = select_function(*c, function, use.message);
  if (status == STRIDEC_OK) status = reserve(*c, inputs, input_count, outputs, output_count, use.message);
  if (status != STRIDEC_OK || c->cuda) return status;
  populate_code(*c->model);
  // For a file that is not in memory yet, the kernel then reads and keeps huge pages if the file system
  // supports them.
  const Bytes& weights = c->model->blob.weights;
  const auto first = reinterpret_cast<uintptr_t>(weights.data) & ~uintptr_t{kPage - 1};
  if (weights.size >= kHugePage) madvise(reinterpret_cast<void*>(first), weights.size, MADV_HUGEPAGE);
  Warming warming = {c, c->threads, now_ns() + kMeetNanoseconds, {0}};
  run_parts(*c, c->threads, warm_part, &warming);
  return STRIDEC_OK;
}

}  // namespace stridec::runtime
