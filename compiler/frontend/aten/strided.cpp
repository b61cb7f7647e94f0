#include "compiler/frontend/aten/strided.h"

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::aten {
namespace {

[[noreturn]] void bad(const std::string& message) { fail(ErrorKind::kMalformed, "bad-program", message); }

// Copies elements of `width` bytes in row-major order.
void gather(const uint8_t* from, uint8_t*& to, size_t width, const Layout& layout, size_t dim) {
  if (dim == layout.sizes.size()) {
    std::memcpy(to, from, width);
    to += width;
    return;
  }
  for (int64_t i = 0; i < layout.sizes[dim]; ++i)
    gather(from + i * layout.strides[dim] * static_cast<int64_t>(width), to, width, layout, dim + 1);
}

}  // namespace

int64_t element_count(const std::string& name, const Layout& layout) {
  if (layout.sizes.size() != layout.strides.size()) bad(cat("'", name, "' has other strides than sizes"));
  if (layout.offset < 0) bad(cat("'", name, "' starts before its storage"));
  int64_t total = 1;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    const int64_t size = layout.sizes[d];
    if (size < 0 || layout.strides[d] < 0) bad(cat("'", name, "' has a negative size or stride"));
    if (size > 0 && total > (int64_t{1} << 46) / size) bad(cat("'", name, "' is larger than any memory"));
    total *= size;
  }
  return total;
}

graph::Data row_major(const std::string& name, const graph::Data& storage, size_t width,
                      const Layout& layout) {
  const int64_t total = element_count(name, layout);
  if (total == 0) return graph::own({});
  __int128 last = layout.offset;
  for (size_t d = 0; d < layout.sizes.size(); ++d) last += __int128{layout.sizes[d] - 1} * layout.strides[d];
  if ((last + 1) * static_cast<__int128>(width) > static_cast<__int128>(storage.size))
    bad(cat("'", name, "' reaches beyond its storage of ", storage.size, " bytes"));
  const uint8_t* first = storage.bytes + layout.offset * static_cast<int64_t>(width);
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t d = layout.sizes.size(); d-- > 0;) {
    contiguous = contiguous && (layout.sizes[d] == 1 || layout.strides[d] == expected);
    expected *= layout.sizes[d];
  }
  const size_t bytes = static_cast<size_t>(total) * width;
  if (contiguous) return {.owner = storage.owner, .bytes = first, .size = bytes};
  // A layout may repeat elements, so its size says nothing of the file's.
  if (bytes > (size_t{1} << 30) && bytes / 16 > storage.size)
    bad(cat("'", name, "' repeats the elements of its storage too often"));
  std::vector<uint8_t> copy(bytes);
  uint8_t* to = copy.data();
  gather(first, to, width, layout, 0);
  return graph::own(std::move(copy));
}

}  // namespace stridec::aten
