// Elements of a storage in PyTorch's layouts, as row-major bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::aten {

// In elements.
struct Layout {
  int64_t offset = 0;
  std::vector<int64_t> sizes, strides;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// How many elements the layout has. Throws Error kMalformed for negative or absurd numbers.
int64_t element_count(const std::string& name, const Layout& layout);

// `width` is of an element, in bytes. Points into the storage where the elements are contiguous, a copy
// otherwise. Throws Error kMalformed for a layout that reaches beyond the storage. `name` is for messages.
graph::Data row_major(const std::string& name, const graph::Data& storage, size_t width,
                      const Layout& layout);

}  // namespace stridec::aten
