// The part of the importer that handles branches of an If that contradict known sizes.
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
  // Calls `build`, which adds nodes to a region of its own. If they contradict known sizes, returns the first
  // problem and discards the nodes; `build` must have closed its region by then. Other problems are reported
  // and abort the node.
  virtual std::optional<Diagnostic> try_region(const std::function<void()>& build) = 0;
  // For the If being imported: the branch it is known to take, because the nodes that follow fit no other
  // branch, and the reason. Returns it once.
  struct Choice {
    bool then_branch;
    std::string reason;
  };
  virtual std::optional<Choice> take_choice() = 0;
};
BranchImporter& branches_of(Importer& importer);

}  // namespace stridec::onnx
