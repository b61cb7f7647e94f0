// Branches of an If that may not fit: what its row needs of the importer.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

class BranchImporter {
 public:
  virtual ~BranchImporter() = default;
  // Calls `build`, which adds to a region of its own. Where what it adds contradicts known sizes, the
  // first problem, with nothing left of it; the builder's region has to be closed by then. Other
  // problems are reported, and end the node.
  virtual std::optional<Diagnostic> try_region(const std::function<void()>& build) = 0;
  // Of the If that is imported, once: the branch that it is known to take because what follows fits no
  // other, and why.
  struct Choice {
    bool then_branch;
    std::string reason;
  };
  virtual std::optional<Choice> take_choice() = 0;
};
BranchImporter& branches_of(Importer& importer);

}  // namespace stridec::onnx
