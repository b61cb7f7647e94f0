// The example inputs that torch.export.save stores with a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/graph/graph.h"

namespace stridec::pt2 {

struct SampleInput {
  std::string name;  // of the artifact's input
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // row-major
};
// Empty if the archive has none, or holds anything in them but tensors, numbers, strings and None in tuples,
// lists and dicts. `program`: of read_archive().
std::vector<SampleInput> sample_inputs(const graph::Data& file, const std::string& program);

}  // namespace stridec::pt2
