// Imports a TorchScript file (torch.jit.save) as a graph.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/torchscript/options.h"
#include "compiler/graph/graph.h"

namespace stridec::torchscript {

struct Imported {
  graph::Graph graph;
  std::vector<Diagnostic> problems;  // everything that prevents compilation
  std::vector<Diagnostic> warnings;
  std::string summary;                           // "TorchScript, 69 operators, weights 44.7 MB"
  std::vector<graph::UnknownCall> unknown = {};  // calls of unknown operators
};

// Whether the file has one of PyTorch's formats other than that of exported programs. Files that are not
// TorchScript, such as checkpoints, are refused by import_module with an error that says what they are.
bool is_module(const graph::Data& file);

// Collects what is not supported as problems and continues. Throws Error for files that cannot be read.
//
// Inputs. The arguments of forward(), or of another method that `method` names, by their names; items of
// tuples, lists and dicts are "pair.0", "images.2" and "targets.boxes". Their types come from `shapes`, or
// from the example of a traced module.
// Writes. What forward() writes, in place or by setting an attribute, is a state that starts with the file's
// value. An input that it writes has its new value in the additional output "NAME.updated".
Imported import_module(const std::string& path, const graph::Data& file, const ImportOptions& options);

}  // namespace stridec::torchscript
