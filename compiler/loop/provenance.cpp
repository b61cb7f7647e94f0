#include "compiler/loop/provenance.h"

#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"

namespace stridec::loop {

std::string nodes_of(std::vector<std::string> nodes) {
  constexpr size_t kMost = 3;  // a fused nest may have dozens
  sort_nodes(nodes);
  if (nodes.size() > kMost) return cat(nodes.front(), ", ", nodes.size() - 2, " more, ", nodes.back());
  return join(nodes, ", ");
}

std::string nodes_of(const Nest& nest) { return nodes_of(nest.nodes); }

void add_provenance(Error& error, const Nest& nest) {
  std::string& node = error.diagnostic.where.node;
  if (node.empty()) node = nodes_of(nest);
}

}  // namespace stridec::loop
