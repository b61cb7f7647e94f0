// The .pt2 archive: which program it holds and where its weights are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/pt2/program.h"
#include "compiler/graph/graph.h"

namespace stridec::pt2 {

// One tensor of the state dict or of the constants. Tensors may share a storage.
struct StoredTensor {
  TensorMeta meta;
  std::string path;  // of the storage: equal paths are one storage
  graph::Data storage;
};

struct Archive {
  Program program;
  std::string model;                            // its name in the archive
  std::map<std::string, StoredTensor> tensors;  // by name: "fc.weight"
  std::map<std::string, std::string> refused;   // tensors that cannot be read, with the reason
};

// Whether the zip archive holds an exported program of any generation. Throws Error for a damaged archive.
bool holds_program(const graph::Data& file);

// `program`: the name of one of several programs; "": the only one. Throws Error for archives of other kinds
// (saying what they are), for damaged ones, and for programs that they do not have.
Archive read_archive(const graph::Data& file, const std::string& program);

}  // namespace stridec::pt2
