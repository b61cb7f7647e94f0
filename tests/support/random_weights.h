// Programs with pseudo-random weights, equal on every machine, and with prepacked weights.
#pragma once

#include <utility>

#include "compiler/loop/interpret.h"
#include "tests/support/random_tensor.h"

namespace stridec::test {

// Fills all weights of the program; their sizes must be known.
inline loop::Program with_random_weights(loop::Program program) {
  for (loop::Buffer& buffer : program.buffers) {
    if (buffer.storage != loop::Storage::kParameter) continue;
    const std::vector<int64_t> shape = shape_of(buffer);
    buffer.weight = weight_data(random_tensor(buffer.dtype, shape, static_cast<int>(shape[0])).bytes);
  }
  return program;
}

// Runs the program's prepack nests and replaces them by their results.
inline loop::Program prepacked(loop::Program program) {
  const auto made = loop::interpret_prepack(program);
  for (size_t i = 0; i < made.size(); ++i)
    if (!made[i].empty())
      program.buffers[i].weight = weight_data(made[i]), program.buffers[i].prepacked = false;
  program.prepack.clear();
  return program;
}

}  // namespace stridec::test
