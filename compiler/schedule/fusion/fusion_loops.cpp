// Merges consecutive loops over equal ranges:
//
//   for k: t[r,k] = f(x[r,k])        for k: t[r,k] = f(x[r,k]), y[r,k] = g(t[r,k])
//   for k: y[r,k] = g(t[r,k])   ->
#include <algorithm>
#include <optional>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::For;
using loop::Nest;
using loop::Stmt;
using sym::Expr;

struct Access {
  const loop::Access* access;
  bool store;
};
std::vector<Access> accesses_in(const Block& block) {
  std::vector<Access> found;
  loop::for_each_stmt(block, [&](const Stmt& stmt) {
    if (const loop::Access* access = loop::access_of(stmt))
      found.push_back({access, std::holds_alternative<loop::Store>(stmt.node)});
  });
  return found;
}

// The second loop's variables in terms of the first's; nothing if the ranges differ.
std::optional<sym::Substitution> same_ranges(const For& first, const For& second) {
  if (first.dims.size() != second.dims.size()) return std::nullopt;
  sym::Substitution names;
  for (size_t d = 0; d < first.dims.size(); ++d) {
    if (first.dims[d].extent != second.dims[d].extent) return std::nullopt;
    names[second.dims[d].var] = first.dims[d].var;
  }
  return names;
}

// Accesses of both loops to one element have to belong to the same iteration: the index is equal in both
// loops and determines the iteration. Returns what breaks that.
std::optional<FusionRule> breaks_order(const For& first, const For& second, const sym::Substitution& names) {
  for (const Access& a : accesses_in(first.body))
    for (const Access& b : accesses_in(second.body)) {
      if (a.access->buffer != b.access->buffer || (!a.store && !b.store)) continue;
      std::vector<Expr> index = b.access->index;
      for (Expr& e : index) e = sym::substitute(e, names);
      if (index != a.access->index) return FusionRule::kJoinIndex;
      for (const loop::Dim& dim : first.dims)
        if (!dim.extent.is_const(1) && std::find(index.begin(), index.end(), dim.var) == index.end())
          return FusionRule::kJoinIteration;
    }
  return std::nullopt;
}

bool is_scalar(const Stmt& stmt) {
  return std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Constant>(stmt.node);
}

}  // namespace

void join_loops(Nest& nest, std::vector<FusionRule>* refused) {
  for (size_t at = 0; at < nest.body.size();) {
    if (!std::holds_alternative<For>(nest.body[at].node)) {
      ++at;
      continue;
    }
    // Scalar arithmetic between two loops moves before both, since loops yield no values.
    size_t next = at + 1;
    while (next < nest.body.size() && is_scalar(nest.body[next])) ++next;
    if (next == nest.body.size()) return;
    auto* second = std::get_if<For>(&nest.body[next].node);
    const auto names = second ? same_ranges(std::get<For>(nest.body[at].node), *second) : std::nullopt;
    const std::optional<FusionRule> why =
        !second  ? FusionRule::kJoinBetween
        : !names ? FusionRule::kJoinRanges
                 : breaks_order(std::get<For>(nest.body[at].node), *second, *names);
    if (why) {
      if (refused) refused->push_back(*why);
      at = next;
      continue;
    }
    loop::substitute(second->body, *names);
    std::rotate(nest.body.begin() + static_cast<std::ptrdiff_t>(at),
                nest.body.begin() + static_cast<std::ptrdiff_t>(at + 1),
                nest.body.begin() + static_cast<std::ptrdiff_t>(next));
    at = next - 1;  // where the first loop is now; the next round may merge it further
    Block& body = std::get<For>(nest.body[at].node).body;
    std::move(second->body.begin(), second->body.end(), std::back_inserter(body));
    nest.body.erase(nest.body.begin() + static_cast<std::ptrdiff_t>(next));
  }
}

}  // namespace stridec::schedule
