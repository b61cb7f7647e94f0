#include "compiler/frontend/pt2/weights.h"

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pt2/json.h"

namespace stridec::pt2 {
namespace {

int64_t constant(const Size& size, const std::string& name) {
  if (!size.value) malformed(cat("the size of '", name, "' is not a number"));
  return *size.value;
}

// Copies elements of `width` bytes in row-major order.
void gather(const uint8_t* from, uint8_t*& to, size_t width, const std::vector<int64_t>& sizes,
            const std::vector<int64_t>& strides, size_t dim) {
  if (dim == sizes.size()) {
    std::memcpy(to, from, width);
    to += width;
    return;
  }
  for (int64_t i = 0; i < sizes[dim]; ++i)
    gather(from + i * strides[dim] * static_cast<int64_t>(width), to, width, sizes, strides, dim + 1);
}

}  // namespace

Weight read_weight(const std::string& name, const StoredTensor& stored, bool missing_is_zero) {
  const TensorMeta& meta = stored.meta;
  const auto type = element_type(meta.scalar_type);
  if (!type)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("'", name, "' has elements of type ", scalar_type_name(meta.scalar_type)));
  if (meta.layout != 7)
    fail(ErrorKind::kUnsupported, "unsupported-layout", cat("'", name, "' is not a dense tensor"));
  if (meta.sizes.size() != meta.strides.size()) malformed(cat("'", name, "' has other strides than sizes"));
  Weight out{.type = {type->dtype, {}}, .complex = type->complex, .data = {}};
  const size_t width = static_cast<size_t>(byte_size(type->dtype)) * (type->complex ? 2 : 1);
  std::vector<int64_t> sizes, strides;
  int64_t total = 1;
  __int128 last = constant(meta.offset, name);
  if (last < 0) malformed(cat("'", name, "' starts before its storage"));
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    const int64_t size = constant(meta.sizes[d], name), stride = constant(meta.strides[d], name);
    if (size < 0 || stride < 0) malformed(cat("'", name, "' has a negative size or stride"));
    if (size > 0 && total > (int64_t{1} << 46) / size)
      malformed(cat("'", name, "' is larger than any memory"));
    total *= size;
    if (size > 0) last += __int128{size - 1} * stride;
    sizes.push_back(size);
    strides.push_back(stride);
    out.type.shape.emplace_back(size);
  }
  if (type->complex) out.type.shape.emplace_back(2);
  graph::check_size(out.type);
  const size_t bytes = static_cast<size_t>(total) * width;
  if (total == 0) {
    out.data = graph::own({});
    return out;
  }
  if (stored.storage.size == 0) {
    if (!missing_is_zero)
      fail(ErrorKind::kUnsupported, "no-weights",
           cat("the file has no weights: '", name, "' has sizes, but its storage is empty"),
           "the program was exported from fake or meta tensors; export the module with its weights");
    out.data = graph::own(std::vector<uint8_t>(bytes));
    return out;
  }
  if ((last + 1) * static_cast<__int128>(width) > static_cast<__int128>(stored.storage.size))
    malformed(cat("'", name, "' reaches beyond its storage of ", stored.storage.size, " bytes"));
  const uint8_t* first = stored.storage.bytes + *meta.offset.value * static_cast<int64_t>(width);
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t d = sizes.size(); d-- > 0;) {
    contiguous = contiguous && (sizes[d] == 1 || strides[d] == expected);
    expected *= sizes[d];
  }
  if (contiguous) {
    out.data = {.owner = stored.storage.owner, .bytes = first, .size = bytes};
    return out;
  }
  std::vector<uint8_t> copy(bytes);
  uint8_t* to = copy.data();
  gather(first, to, width, sizes, strides, 0);
  out.data = graph::own(std::move(copy));
  return out;
}

}  // namespace stridec::pt2
