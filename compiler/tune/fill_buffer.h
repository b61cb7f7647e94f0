// Memory with data to measure on.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "compiler/base/dtype.h"

namespace stridec::tune {

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

// Floats as activations have them; integers in [least, most]. A pattern of one megabyte repeats. Whole pages and one more;
// null where there is no memory.
Memory filled(int64_t bytes, DType dtype, int64_t least = 0, int64_t most = 0);

}  // namespace stridec::tune
