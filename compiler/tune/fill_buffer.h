// Allocates and fills buffers for measurements.
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

// Floats are distributed like activations; integers are in [least, most]. A pattern of one megabyte repeats.
// Allocates whole pages plus one; null if memory is exhausted.
Memory filled(int64_t bytes, DType dtype, int64_t least = 0, int64_t most = 0);

}  // namespace stridec::tune
