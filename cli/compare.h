// Compares tensors for `verify`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/loop/interpret.h"

namespace stridec::cli {

using Tensors = std::vector<loop::HostTensor>;

struct Difference {
  size_t output = 0;
  double error = 0;  // relative to the largest expected magnitude; infinite if shapes or dtypes differ
  double mean = 0;   // mean of all elements, relative likewise
  int64_t element = 0;
  double got = 0, want = 0;
};

// The element of one output with the largest difference.
Difference compare(const loop::HostTensor& got, const loop::HostTensor& want);
// One difference for each output.
std::vector<Difference> compare(const Tensors& got, const Tensors& want);

std::string position(const loop::HostTensor& tensor, int64_t element);  // "[1,36,12]"

}  // namespace stridec::cli
