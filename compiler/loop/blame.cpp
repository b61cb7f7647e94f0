#include "compiler/loop/blame.h"

#include "compiler/base/text.h"

namespace stridec::loop {

std::string nodes_of(const Nest& nest) {
  constexpr size_t kMost = 3;  // a fused nest may have dozens
  std::string node;
  const size_t shown = nest.nodes.size() > kMost ? kMost - 1 : nest.nodes.size();
  for (size_t i = 0; i < shown; ++i) node += (i > 0 ? ", " : "") + nest.nodes[i];
  if (shown < nest.nodes.size()) node += cat(" and ", nest.nodes.size() - shown, " more");
  return node;
}

void blame(Error& error, const Nest& nest) {
  std::string& node = error.diagnostic.where.node;
  if (node.empty()) node = nodes_of(nest);
}

}  // namespace stridec::loop
