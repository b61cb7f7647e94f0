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

}  // namespace

stridec_status gather(stridec_context& c, const stridec_tensor& t, const int64_t* dims, int32_t rank,
                      int64_t element, char* to, Text& message) {
  Span span(c);
  const bool fetched = on_device(t);
  if (fetched)
    if (stridec_status status = span.fetch(t, element, message); status != STRIDEC_OK) return status;
  const stridec_tensor& from = fetched ? span.image : t;
  copy_strided(to, nullptr, data_of(from), from.strides, dims, rank, element);
  return STRIDEC_OK;
}

stridec_status scatter(stridec_context& c, const char* from, const stridec_tensor& t, const int64_t* dims,
                       int32_t rank, int64_t element, Text& message) {
  int64_t strides[kMaxRank];  // without strides: row-major over the given shape
  int64_t stride = 1;
  for (int32_t d = rank; d-- > 0; stride *= t.shape[d]) strides[d] = stride;
  const int64_t* places = t.strides ? t.strides : strides;
  if (!on_device(t)) {
    copy_strided(data_of(t), places, from, nullptr, dims, rank, element);
    return STRIDEC_OK;
  }
  Span span(c);
  if (stridec_status status = span.fetch(t, element, message); status != STRIDEC_OK) return status;
  copy_strided(data_of(span.image), places, from, nullptr, dims, rank, element);
  const Extent extent = extent_of(t, element);
  const bool done =
      cuda_upload(*c.cuda, const_cast<char*>(extent.begin), span.block.data, extent.end - extent.begin) &&
      cuda_wait(*c.cuda);
  return done ? STRIDEC_OK : device_error(c, message);
}

}  // namespace stridec::runtime
