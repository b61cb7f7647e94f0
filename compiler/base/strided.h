// Walks over the elements of a strided tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace stridec {

// Calls visit(element, place) for each element in row-major order; place == offset + the sum of index *
// stride.
template <class Visit>
void for_each_place(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t offset,
                    const Visit& visit) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<int64_t> at(dims.size(), 0);
  for (int64_t element = 0, place = offset; element < count; ++element) {
    visit(element, place);
    for (size_t d = dims.size(); d-- > 0;) {
      place += strides[d];
      if (++at[d] < dims[d]) break;
      place -= strides[d] * at[d];
      at[d] = 0;
    }
  }
}

// Strides of dense memory with the dims in this order, outermost first.
inline std::vector<int64_t> strides_in_order(std::span<const int64_t> dims, std::span<const int32_t> order) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    strides[d] = stride;
    stride *= std::max<int64_t>(dims[d], 1);
  }
  return strides;
}

// Row-major elements of `width` bytes, put where dense strides say.
inline std::vector<uint8_t> scattered(std::span<const uint8_t> elements, std::span<const int64_t> dims,
                                      std::span<const int64_t> strides, int64_t width) {
  std::vector<uint8_t> out(elements.size());
  for_each_place(dims, strides, 0, [&](int64_t element, int64_t place) {
    std::memcpy(out.data() + place * width, elements.data() + element * width, static_cast<size_t>(width));
  });
  return out;
}
// The reverse.
inline std::vector<uint8_t> gathered(std::span<const uint8_t> memory, std::span<const int64_t> dims,
                                     std::span<const int64_t> strides, int64_t width) {
  std::vector<uint8_t> out(memory.size());
  for_each_place(dims, strides, 0, [&](int64_t element, int64_t place) {
    std::memcpy(out.data() + element * width, memory.data() + place * width, static_cast<size_t>(width));
  });
  return out;
}

}  // namespace stridec
