#include "compiler/loop/blame.h"

#include "compiler/base/text.h"

namespace stridec::loop {

std::string nodes_of(const std::vector<std::string>& nodes) {
  constexpr size_t kMost = 3;  // a fused nest may have dozens
  std::string node;
  const size_t shown = nodes.size() > kMost ? kMost - 1 : nodes.size();
  for (size_t i = 0; i < shown; ++i) node += (i > 0 ? ", " : "") + nodes[i];
  if (shown < nodes.size()) node += cat(" and ", nodes.size() - shown, " more");
  return node;
}

std::string nodes_of(const Nest& nest) { return nodes_of(nest.nodes); }

void blame(Error& error, const Nest& nest) {
  std::string& node = error.diagnostic.where.node;
  if (node.empty()) node = nodes_of(nest);
}

}  // namespace stridec::loop
