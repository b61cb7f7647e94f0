// Stored tensors as row-major bytes.
#pragma once

#include <map>
#include <set>
#include <string>

#include "compiler/frontend/pt2/archive.h"
#include "compiler/frontend/pt2/scalar_type.h"
#include "compiler/graph/given_weights.h"

namespace stridec::pt2 {

struct Weight {
  graph::Type type;  // with a last dim of 2 for complex numbers
  bool complex = false;
  graph::Data data;  // points into the archive where the tensor is contiguous, a copy otherwise
};

// Where the values come from that the file lacks, as in programs exported from fake tensors.
struct MissingWeights {
  bool are_zero = false;
  const graph::GivenWeights* given = nullptr;  // null: nowhere
};

// Whether the tensor is all of its storage, in row-major order.
bool fills_storage(const StoredTensor& stored);
// The whole storage as a tensor of one dim.
StoredTensor flat(const StoredTensor& stored);

// Whether the file has the tensor's type and not its values.
bool lacks_values(const StoredTensor& stored);

// A program without values says which tensors are parts of larger storages, and not of which. Throws Error if
// such a tensor and a written one (by the path of its storage) may share theirs.
void check_storages_of_missing(const std::map<std::string, StoredTensor>& tensors,
                               const std::set<std::string>& written);

// Throws Error for tensors that exceed their storage, have unknown types, or have no value anywhere.
Weight read_weight(const std::string& name, const StoredTensor& stored, const MissingWeights& missing);

}  // namespace stridec::pt2
