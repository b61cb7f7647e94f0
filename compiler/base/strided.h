// Walks over the elements of a strided tensor.
#pragma once

#include <cstdint>
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

}  // namespace stridec
