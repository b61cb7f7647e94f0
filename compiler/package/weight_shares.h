// Which part of an artifact's weights each of its programs needs.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/package/artifact.h"

namespace stridec::package {

struct WeightShares {
  uint64_t shared = 0;        // bytes that several groups read
  std::vector<uint64_t> own;  // per group: bytes that no other group reads
};

// The groups are disjoint sets of the artifact's programs, with weights placed: one per target, for example.
WeightShares weight_shares(const std::vector<Programs>& groups);

}  // namespace stridec::package
