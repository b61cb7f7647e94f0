#include "compiler/schedule/algebra/delinearize.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

// b / a if the division is exact.
std::optional<Expr> exact_quotient(Expr b, Expr a, const sym::Facts& facts) {
  const Expr quotient = sym::simplify(sym::floordiv(b, a), facts);
  if (sym::simplify(quotient * a, facts) != sym::simplify(b, facts)) return std::nullopt;
  return quotient;
}

// The divisors of `var` in a block's expressions: K for `var // K` and mod(var, K), K*M for mod(var // K, M).
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

// Returns 1 = K0, K1, ..., Kn = extent, each a multiple of the previous one, or nothing if the divisors form
// no such chain.
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

// Splits those of `dims` that can be split; `body` is their scope.
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

sym::Substitution extents_of(const Nest& nest) {
  sym::Substitution extents;
  for (const Dim& dim : nest.dims) extents.emplace(dim.var, dim.extent);
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    for (const Dim& dim : loop::dims_of(stmt)) extents.emplace(dim.var, dim.extent);
  });
  return extents;
}

// The mixed-radix digits of `e`, a number below `extent`, most significant first: the loop variable and the
// number of values of each. Nothing if `e` is not such a number of two or more digits.
struct CountedDigit {
  Expr var;
  int64_t values;
};
std::optional<std::vector<CountedDigit>> counted_digits(Expr e, Expr extent,
                                                        const sym::Substitution& extents) {
  if (!extent.is_const()) return std::nullopt;
  std::vector<std::pair<int64_t, Expr>> terms;
  for (Expr var : sym::free_vars(e)) {
    const auto linear = sym::linear_in(e, var);
    if (!linear || !linear->coefficient.is_const() || linear->coefficient.value() < 1 ||
        !extents.contains(var))
      return std::nullopt;
    terms.emplace_back(linear->coefficient.value(), var);
    e = linear->rest;
  }
  if (terms.size() < 2 || !e.is_const(0)) return std::nullopt;
  std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<CountedDigit> digits;
  int64_t above = extent.value();
  for (const auto& [weight, var] : terms) {
    if (above % weight || above == weight || !extents.at(var).is_const(above / weight)) return std::nullopt;
    digits.push_back({var, above / weight});
    above = weight;
  }
  if (above != 1) return std::nullopt;
  return digits;
}

class WeightSplitter {
 public:
  explicit WeightSplitter(Program& program)
      : program_(program),
        fixed_(fixed_buffers(program)),
        prepack_(program.prepack.begin(), program.prepack.end()) {
    for (uint32_t n = 0; n < program.nests.size(); ++n) {
      const auto extents = extents_of(program.nests[n]);
      loop::for_each_stmt(program.nests[n].body, [&](const Stmt& stmt) {
        if (const loop::Access* access = loop::access_of(stmt)) look(loop::NestId{n}, *access, extents);
      });
    }
  }

  void apply() {
    std::set<loop::NestId> touched;
    for (const auto& [place, values] : values_) {
      if (refused_.contains(place)) continue;
      split(place, values);
      touched.insert(nests_[place.first].begin(), nests_[place.first].end());
    }
    for (loop::NestId id : touched) {
      Nest& nest = program_[id];
      loop::with_provenance(nest, [&] {
        if (prepack_.contains(id)) split_dims(nest, nest.dims, nest.body, program_.facts, false);
        loop::clean(program_, nest);
      });
    }
  }

 private:
  using Place = std::pair<loop::BufferId, size_t>;  // a dim of a weight

  void look(loop::NestId id, const loop::Access& access, const sym::Substitution& extents) {
    const loop::Buffer& buffer = program_[access.buffer];
    if (buffer.storage != loop::Storage::kParameter || fixed_.contains(access.buffer) ||
        buffer.strides != loop::row_major(buffer.shape))
      return;
    nests_[access.buffer].insert(id);
    for (size_t d = 0; d < access.index.size(); ++d) {
      const Place place(access.buffer, d);
      const auto digits = counted_digits(access.index[d], buffer.shape[d], extents);
      // Nests that run at compile time can iterate over the new dims.
      if (!digits && prepack_.contains(id) && sym::is_index(access.index[d]) &&
          extents.contains(access.index[d]))
        continue;
      std::vector<int64_t> values;
      for (const CountedDigit& digit : digits.value_or(std::vector<CountedDigit>()))
        values.push_back(digit.values);
      if (!digits || values_.emplace(place, values).first->second != values) refused_.insert(place);
    }
  }

  void split(const Place& place, const std::vector<int64_t>& values) {
    const auto& [id, d] = place;
    const auto shift = static_cast<std::ptrdiff_t>(d);
    for (loop::NestId n : nests_[id])
      loop::for_each_stmt(program_[n].body, [&](Stmt& stmt) {
        loop::Access* access = loop::access_of(stmt);
        if (!access || access->buffer != id) return;
        const Expr whole = access->index[d];
        std::vector<Expr> index;
        int64_t below = 1;
        for (size_t i = values.size(); i-- > 0; below *= values[i]) {
          const Expr above = sym::floordiv(whole, below);
          index.insert(index.begin(), i == 0 ? above : sym::mod(above, values[i]));
        }
        for (Expr& e : index) e = sym::simplify(e, loop::facts_of(program_, program_[n]));
        access->index.erase(access->index.begin() + shift);
        access->index.insert(access->index.begin() + shift, index.begin(), index.end());
      });
    loop::Buffer& buffer = program_[id];
    buffer.shape.erase(buffer.shape.begin() + shift);
    buffer.shape.insert(buffer.shape.begin() + shift, values.begin(), values.end());
    buffer.strides = loop::row_major(buffer.shape);
  }

  Program& program_;
  const std::set<loop::BufferId> fixed_;
  const std::set<loop::NestId> prepack_;
  std::map<loop::BufferId, std::set<loop::NestId>> nests_;
  std::map<Place, std::vector<int64_t>, std::greater<>> values_;  // by descending dim of a weight
  std::set<Place> refused_;
};

// Whether the nest is not a contraction and reduces columns that a dim with divisions runs across. Thread
// groups then need to know which of its points are neighbours in memory.
bool reduces_columns(const Program& program, const Nest& nest) {
  bool found = false;
  const auto look = [&](const Stmt& stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || load->access.index.empty()) return;
    if (!program[load->access.buffer].strides.back().is_const(1)) return;
    const Expr last = load->access.index.back();
    found = found || (last.op() == sym::Op::kMod && loop::is_var_of(last.arg(0), nest.dims));
  };
  for (const Stmt& stmt : nest.body)
    if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) loop::for_each_stmt(reduce->body, look);
  return found && !is_contraction(nest);
}

}  // namespace

void delinearize(Program& program) {
  for (Nest& nest : program.nests) {
    loop::with_provenance(nest, [&] {
      bool changed = split_dims(nest, nest.dims, nest.body, program.facts, !reduces_columns(program, nest));
      changed = split_inner(nest, nest.body, program.facts) || changed;
      if (changed) loop::clean(program, nest);
    });
  }
  WeightSplitter(program).apply();
}

}  // namespace stridec::schedule
