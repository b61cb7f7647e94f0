#include "transfer.h"

namespace stridec::runtime {
namespace {

// A copy in host memory of the bytes that a tensor on the device spans.
struct Span {
  stridec_context& c;
  Block block = {};
  stridec_tensor image = {};  // the same tensor over the copy

  explicit Span(stridec_context& context) : c(context) {}
  ~Span() { release(c.allocator, block); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  stridec_status fetch(const stridec_tensor& t, int64_t element, Text& message) {
    const Extent extent = extent_of(t, element);
    const int64_t bytes = extent.end - extent.begin;
    if (!grow(c.allocator, block, bytes)) return out_of_memory(message, "a copy of a strided tensor", bytes);
    image = t;
    image.data = block.data + (data_of(t) - extent.begin);
    image.byte_offset = 0;
    return cuda_download(*c.cuda, block.data, extent.begin, bytes) ? STRIDEC_OK : device_error(c, message);
  }
};

// A copy of elements from and to strided host memory, in parts along one dim.
struct ParallelCopy {
  char* to;
  const char* from;
  const int64_t *to_strides, *from_strides, *dims;
  int32_t rank;
  int64_t element;
  int32_t split, parts;
};

void copy_part(void* argument, int32_t part) {
  const auto& copy = *static_cast<const ParallelCopy*>(argument);
  const int64_t first = stridec_abi_share(copy.dims[copy.split], copy.parts, part);
  int64_t dims[kMaxRank];
  for (int32_t d = 0; d < copy.rank; ++d) dims[d] = copy.dims[d];
  dims[copy.split] = stridec_abi_share(copy.dims[copy.split], copy.parts, part + 1) - first;
  copy_strided(copy.to + first * copy.to_strides[copy.split] * copy.element, copy.to_strides,
               copy.from + first * copy.from_strides[copy.split] * copy.element, copy.from_strides, dims,
               copy.rank, copy.element);
}

void copy_by_threads(const stridec_context& c, ParallelCopy copy) {
  constexpr int64_t kWorthThreads = 64 << 10;  // bytes; below, waking threads takes longer
  copy.parts = 1;
  for (int32_t d = 1; d < copy.rank; ++d)
    if (copy.dims[d] > copy.dims[copy.split]) copy.split = d;
  if (copy.rank && compact_bytes(copy.dims, copy.rank, copy.element) >= kWorthThreads)
    copy.parts = static_cast<int32_t>(stridec_abi_parts(copy.dims[copy.split], 1, c.threads));
  if (copy.parts > 1)
    run_parts(c, copy.parts, copy_part, &copy);
  else
    copy_strided(copy.to, copy.to_strides, copy.from, copy.from_strides, copy.dims, copy.rank, copy.element);
}

// The tensor's strides, in `own` if it has none: row-major over its shape.
const int64_t* given_strides(const stridec_tensor& t, int64_t* own) {
  if (t.strides) return t.strides;
  strides_of({t.shape, nullptr, t.ndim, 1}, own);
  return own;
}

}  // namespace

stridec_status gather(stridec_context& c, const stridec_tensor& t, const Compact& memory, char* to,
                      Text& message) {
  Span span(c);
  const bool fetched = on_device(t);
  if (fetched)
    if (stridec_status status = span.fetch(t, memory.element_bytes, message); status != STRIDEC_OK)
      return status;
  const stridec_tensor& from = fetched ? span.image : t;
  int64_t compact[kMaxRank], own[kMaxRank];
  strides_of(memory, compact);
  copy_by_threads(c, {.to = to,
                      .from = data_of(from),
                      .to_strides = compact,
                      .from_strides = given_strides(from, own),
                      .dims = memory.dims,
                      .rank = memory.rank,
                      .element = memory.element_bytes});
  return STRIDEC_OK;
}

stridec_status scatter(stridec_context& c, const char* from, const stridec_tensor& t, const Compact& memory,
                       Text& message) {
  int64_t compact[kMaxRank], own[kMaxRank];
  strides_of(memory, compact);
  ParallelCopy copy = {.to = data_of(t),
                       .from = from,
                       .to_strides = given_strides(t, own),
                       .from_strides = compact,
                       .dims = memory.dims,
                       .rank = memory.rank,
                       .element = memory.element_bytes};
  if (!on_device(t)) {
    copy_by_threads(c, copy);
    return STRIDEC_OK;
  }
  Span span(c);
  if (stridec_status status = span.fetch(t, memory.element_bytes, message); status != STRIDEC_OK)
    return status;
  copy.to = data_of(span.image);
  copy_by_threads(c, copy);
  const Extent extent = extent_of(t, memory.element_bytes);
  const bool done =
      cuda_upload(*c.cuda, const_cast<char*>(extent.begin), span.block.data, extent.end - extent.begin) &&
      cuda_wait(*c.cuda);
  return done ? STRIDEC_OK : device_error(c, message);
}

}  // namespace stridec::runtime
