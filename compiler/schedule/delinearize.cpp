#include "compiler/schedule/delinearize.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

// b / a where that leaves no rest.
std::optional<Expr> exact_quotient(Expr b, Expr a, const sym::Facts& facts) {
  const Expr quotient = sym::simplify(sym::floordiv(b, a), facts);
  if (sym::simplify(quotient * a, facts) != sym::simplify(b, facts)) return std::nullopt;
  return quotient;
}

// What the expressions of a block divide `var` by: K of `var // K` and of mod(var, K), K*M of mod(var // K,
// M).
void collect_divisors(const Block& block, Expr var, std::vector<Expr>& divisors) {
  auto add = [&](Expr k) {
    if (!sym::has_index(k) && std::find(divisors.begin(), divisors.end(), k) == divisors.end())
      divisors.push_back(k);
  };
  auto look = [&](Expr node) {
    if (node.op() != sym::Op::kFloorDiv && node.op() != sym::Op::kMod) return;
    if (node.arg(0) == var) add(node.arg(1));
    const Expr inner = node.arg(0);
    if (node.op() == sym::Op::kMod && inner.op() == sym::Op::kFloorDiv && inner.arg(0) == var)
      add(inner.arg(1) * node.arg(1));
  };
  loop::for_each_stmt(block, [&](const Stmt& stmt) {
    loop::for_each_expr(stmt, [&](Expr e) {
      if (sym::depends_on(e, var)) sym::for_each_node(e, look);
    });
  });
}

// 1 = K0, K1, ..., Kn = extent, each a multiple of the one before; nothing where the divisors make no such
// chain.
std::optional<std::vector<Expr>> chain_of(std::vector<Expr> divisors, Expr extent, const sym::Facts& facts) {
  std::vector<Expr> chain = {1};
  while (!divisors.empty()) {
    // The next one is a multiple of the last and divides all that remain.
    bool found = false;
    for (size_t i = 0; i < divisors.size() && !found; ++i) {
      const auto multiple = exact_quotient(divisors[i], chain.back(), facts);
      if (!multiple) continue;
      found = std::all_of(divisors.begin(), divisors.end(),
                          [&](Expr other) { return exact_quotient(other, divisors[i], facts).has_value(); });
      if (!found) continue;
      if (!multiple->is_const(1)) chain.push_back(divisors[i]);
      divisors.erase(divisors.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (!found) return std::nullopt;
  }
  const auto outermost = exact_quotient(extent, chain.back(), facts);
  if (!outermost) return std::nullopt;
  if (outermost->is_const(1))
    chain.back() = extent;
  else
    chain.push_back(extent);
  if (chain.size() < 3) return std::nullopt;  // nothing to split
  return chain;
}

struct Split {
  std::vector<Dim> dims;  // outermost first
  Expr whole;             // the dim they replace
};

std::optional<Split> split_of(Nest& nest, const Dim& dim, const Block& body, const sym::Facts& facts,
                              bool symbolic_only) {
  std::vector<Expr> divisors;
  collect_divisors(body, dim.var, divisors);
  if (divisors.empty()) return std::nullopt;
  if (symbolic_only && std::all_of(divisors.begin(), divisors.end(), [](Expr k) { return k.is_const(); }))
    return std::nullopt;
  const auto chain = chain_of(divisors, dim.extent, facts);
  if (!chain) return std::nullopt;
  loop::Cloner names(nest);
  Split split{.whole = 0};
  for (size_t i = chain->size() - 1; i > 0; --i) {
    const Expr var = names.fresh_index(sym::var(cat(dim.var.name(), ".", chain->size() - 1 - i)));
    split.dims.push_back({var, *exact_quotient((*chain)[i], (*chain)[i - 1], facts)});
    split.whole += var * (*chain)[i - 1];
  }
  return split;
}

// Splits what can be split of `dims`, whose scope is `body`.
bool split_dims(Nest& nest, std::vector<Dim>& dims, Block& body, const sym::Facts& facts,
                bool symbolic_only) {
  bool changed = false;
  std::vector<Dim> out;
  for (const Dim& dim : dims) {
    auto split = split_of(nest, dim, body, facts, symbolic_only);
    if (!split) {
      out.push_back(dim);
      continue;
    }
    loop::substitute(body, {{dim.var, split->whole}});
    out.insert(out.end(), split->dims.begin(), split->dims.end());
    changed = true;
  }
  dims = std::move(out);
  return changed;
}

bool split_inner(Nest& nest, Block& block, const sym::Facts& facts) {
  bool changed = false;
  for (Stmt& stmt : block) {
    if (auto* reduce = std::get_if<loop::Reduce>(&stmt.node))
      changed = split_dims(nest, reduce->dims, reduce->body, facts, false) || changed;
    if (auto* inner = std::get_if<loop::For>(&stmt.node))
      changed = split_dims(nest, inner->dims, inner->body, facts, false) || changed;
    if (Block* body = loop::body_of(stmt)) changed = split_inner(nest, *body, facts) || changed;
  }
  return changed;
}

}  // namespace

void delinearize(Program& program) {
  for (Nest& nest : program.nests) {
    loop::blaming(nest, [&] {
      bool changed = split_dims(nest, nest.dims, nest.body, program.facts, true);
      changed = split_inner(nest, nest.body, program.facts) || changed;
      if (changed) loop::clean(program, nest);
    });
  }
}

}  // namespace stridec::schedule
