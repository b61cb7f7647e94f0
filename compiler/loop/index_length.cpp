#include "compiler/loop/index_length.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/loop/walk.h"

namespace stridec::loop {

uint64_t index_length(const View& view) {
  uint64_t length = view.mask.size();
  for (sym::Expr e : view.index) length += e.size();
  return length;
}

IndexLength longest_index(const Nest& nest) {
  IndexLength longest;
  for_each_stmt(nest.body, [&](const Stmt& stmt) {
    uint64_t terms = 0;
    std::unordered_set<sym::Expr, sym::ExprHash> nodes;
    for_each_expr(stmt, [&](sym::Expr e) {
      terms += e.size();
      sym::for_each_node(e, [&](sym::Expr node) { nodes.insert(node); });
    });
    longest.terms = std::max(longest.terms, terms);
    longest.nodes = std::max<uint64_t>(longest.nodes, nodes.size());
  });
  return longest;
}

}  // namespace stridec::loop
