// Simplification of extents, indices and masks under the facts of the loops around them.
#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

namespace {

using Replacements = std::unordered_map<int32_t, ValueId>;

void resolve(Block& block, const Replacements& replaced) {
  if (replaced.empty()) return;
  for_each_stmt(block, [&](Stmt& s) {
    for_each_use(s, [&](ValueId& v) {
      for (auto it = replaced.find(v.value); it != replaced.end(); it = replaced.find(v.value))
        v = it->second;
    });
  });
}

class Simplifier {
 public:
  explicit Simplifier(Nest& nest) : nest_(nest) {}

  void block(Block& stmts, sym::Facts facts) {
    Block out;
    sym::Substitution known;  // values of bound variables that are provably in range
    for (Stmt& s : stmts) {
      if (!known.empty()) substitute(s, known);
      if (const auto* index = std::get_if<IndexValue>(&s.node)) indices_[index->result.value] = index->expr;
      if (const auto* bind = std::get_if<Bind>(&s.node))
        if (const auto inside = known_index(*bind, facts)) {
          known[bind->var] = *inside;
          continue;
        }
      if (Access* a = access_of(s)) {
        a->mask = sym::simplify(a->mask, facts);
        // Indices only matter where the mask is true.
        sym::Facts inside = a->mask.is_const() ? facts : facts.with(a->mask);
        for (Expr& e : a->index) e = sym::simplify(e, inside);
        if (a->mask.is_const(0)) {
          if (auto* load = std::get_if<Load>(&s.node)) out.push_back({Constant{load->result, load->fill}});
          continue;
        }
      } else if (!loop(s, facts)) {
        for_each_expr(s, [&](Expr& e) { e = sym::simplify(e, facts); });
      }
      if (std::holds_alternative<Bind>(s.node)) add_facts(facts, s);
      Block* body = body_of(s);
      if (body) {
        if (empty_loop(s, out)) continue;
        sym::Facts inside = facts;
        add_facts(inside, s);
        block(*body, inside);
        if (single_pass(s, out)) continue;
      }
      out.push_back(std::move(s));
    }
    stmts = std::move(out);
  }

  Replacements replaced;

 private:
  // The value of a bind's variable, if the bound value is an index that provably passes its check.
  std::optional<Expr> known_index(const Bind& bind, const sym::Facts& facts) const {
    const auto index = indices_.find(bind.value.value);
    if (index == indices_.end() || nest_.values[bind.value.value].dtype != DType::kI64) return std::nullopt;
    const Expr at = index->second;
    if (!facts.holds(sym::ge(at, 0)) || !facts.holds(sym::lt(at, bind.extent))) return std::nullopt;
    return at;
  }

  static void substitute(Stmt& stmt, const sym::Substitution& replacements) {
    Block one;
    one.push_back(std::move(stmt));
    loop::substitute(one, replacements);
    stmt = std::move(one.front());
  }

  // Simplifies extents, each under the facts of the dims before it, and removes dims with a single value.
  bool loop(Stmt& s, sym::Facts facts) {
    auto extents = [&](std::vector<Dim>& dims, Block& body) {
      sym::Substitution fixed;
      std::vector<Dim> kept;
      for (Dim& d : dims) {
        d.extent = sym::simplify(sym::substitute(d.extent, fixed), facts);
        if (d.extent.is_const(1)) {
          fixed[d.var] = 0;
          continue;
        }
        facts.set_index(d.var, d.extent);
        kept.push_back(d);
      }
      dims = std::move(kept);
      loop::substitute(body, fixed);
    };
    if (auto* f = std::get_if<For>(&s.node)) return extents(f->dims, f->body), true;
    if (auto* r = std::get_if<Reduce>(&s.node)) return extents(r->dims, r->body), true;
    return false;
  }

  // A loop that never runs: its results are the initial values.
  bool empty_loop(Stmt& s, Block& out) {
    std::vector<Dim> dims = dims_of(s);
    if (std::none_of(dims.begin(), dims.end(), [](const Dim& d) { return d.extent.is_const(0); }))
      return false;
    if (auto* r = std::get_if<Reduce>(&s.node))
      for (size_t i = 0; i < r->results.size(); ++i) {
        DType dtype = nest_.values[r->results[i].value].dtype;
        out.push_back({Constant{r->results[i], i == 0 ? identity(r->combine, dtype) : int_scalar(dtype, 0)}});
      }
    if (auto* scan = std::get_if<Scan>(&s.node))
      for (size_t i = 0; i < scan->results.size(); ++i) replaced[scan->results[i].value] = scan->init[i];
    return true;
  }

  // A loop without dims is replaced by its body.
  bool single_pass(Stmt& s, Block& out) {
    Block* body = nullptr;
    if (auto* f = std::get_if<For>(&s.node); f && f->dims.empty()) body = &f->body;
    if (auto* r = std::get_if<Reduce>(&s.node); r && r->dims.empty()) {
      body = &r->body;
      for (size_t i = 0; i < r->results.size(); ++i) replaced[r->results[i].value] = r->yields[i];
    }
    if (!body) return false;
    std::move(body->begin(), body->end(), std::back_inserter(out));
    return true;
  }

  Nest& nest_;
  std::unordered_map<int32_t, Expr> indices_;  // index values by id
};

}  // namespace

void simplify(const Program& program, Nest& nest) {
  sym::Facts facts = program.facts;
  // Remove dims of extent 1, so that nests with and without them have the same dims.
  sym::Substitution fixed;
  std::vector<Dim> kept;
  for (Dim& d : nest.dims) {
    d.extent = sym::simplify(sym::substitute(d.extent, fixed), facts);
    if (d.extent.is_const(1)) {
      fixed[d.var] = 0;
      continue;
    }
    facts.set_index(d.var, d.extent);
    kept.push_back(d);
  }
  if (kept.size() != nest.dims.size()) {
    nest.dims = std::move(kept);
    substitute(nest.body, fixed);
  }
  Simplifier simplifier(nest);
  simplifier.block(nest.body, facts);
  resolve(nest.body, simplifier.replaced);
}

}  // namespace stridec::loop
