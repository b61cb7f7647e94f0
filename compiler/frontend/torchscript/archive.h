// The archive of torch.jit.save: its sources, its objects and its tensors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/zip.h"
#include "compiler/frontend/torchscript/pickle.h"
#include "compiler/graph/graph.h"

namespace stridec::torchscript {

struct Archive {
  ZipFile zip;
  std::string root;       // the folder that all members are in, with its slash
  int version = 0;        // of the operators
  ItemRef module;         // data.pkl
  ItemRef constants;      // constants.pkl: a tuple of tensors; null if there is none
  ItemRef traced_inputs;  // traced_inputs.pkl: sample arguments by method, without elements; null: not traced
};

// Whether the bytes are what PyTorch's torch.jit.save or torch.save writes, of any age and kind: read_archive
// reads it, or says what it is.
bool is_of_pytorch(const graph::Data& file);

// Throws Error for files of other kinds (saying what they are) and for damaged ones.
Archive read_archive(const graph::Data& file);

// The text of a source, by the qualified name of its module: "__torch__.torch.nn.functional". None if the
// archive has none.
std::optional<std::string> read_source(const Archive& archive, const std::string& module);
// The positions of a source in the user's files; none if there are none.
std::optional<std::string> read_debug(const Archive& archive, const std::string& module);

// The bytes of a storage of the folder "data" or "constants".
graph::Data read_storage(const Archive& archive, const std::string& folder, const std::string& name);

}  // namespace stridec::torchscript
