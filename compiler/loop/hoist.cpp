// Loop-invariant code motion, and the driver of all clean-up passes.
#include <algorithm>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

namespace {

class Hoister {
 public:
  explicit Hoister(const Program& program) : program_(program) {}

  void block(Block& stmts, sym::Facts facts) {
    Block out;
    for (Stmt& s : stmts) {
      if (Block* body = body_of(s)) {
        sym::Facts inside = facts;
        add_facts(inside, s);
        block(*body, inside);
        lift(s, *body, facts, out);
      }
      add_if_bind(facts, s);
      out.push_back(std::move(s));
    }
    stmts = std::move(out);
  }

 private:
  static void add_if_bind(sym::Facts& facts, const Stmt& s) {
    if (std::holds_alternative<Bind>(s.node)) add_facts(facts, s);
  }

  void lift(Stmt& loop, Block& body, const sym::Facts& facts, Block& out) {
    // Values and index variables that the loop defines.
    std::unordered_set<int32_t> values;
    std::unordered_set<Expr> indices;
    std::unordered_set<int32_t> written;
    for_each_index(std::as_const(loop), [&](Expr v) { indices.insert(v); });
    if (auto* scan = std::get_if<Scan>(&loop.node))
      for (ValueId v : scan->carried) values.insert(v.value);
    for_each_stmt(std::as_const(body), [&](const Stmt& s) {
      if (auto* store = std::get_if<Store>(&s.node)) written.insert(store->access.buffer.value);
    });
    bool runs = true;
    for (const Dim& d : dims_of(loop))
      runs = runs && !sym::has_index(d.extent) && facts.holds(sym::le(1, d.extent));

    Block kept;
    for (Stmt& s : body) {
      if (invariant(s, values, indices, written, runs, facts)) {
        out.push_back(std::move(s));
        continue;
      }
      for_each_result(std::as_const(s), [&](ValueId v) { values.insert(v.value); });
      for_each_index(std::as_const(s), [&](Expr v) { indices.insert(v); });
      kept.push_back(std::move(s));
    }
    body = std::move(kept);
  }

  bool invariant(const Stmt& s, const std::unordered_set<int32_t>& values,
                 const std::unordered_set<Expr>& indices, const std::unordered_set<int32_t>& written,
                 bool runs, const sym::Facts& facts) const {
    if (std::holds_alternative<Store>(s.node) || std::holds_alternative<Bind>(s.node)) return false;
    bool free = true;
    auto look = [&](const Stmt& inner) {
      if (std::holds_alternative<Store>(inner.node) || std::holds_alternative<Bind>(inner.node)) free = false;
      for_each_use(inner, [&](ValueId v) { free = free && !values.count(v.value); });
      for_each_expr(inner, [&](Expr e) {
        if (!free || e.is_const()) return;
        for (Expr v : sym::free_vars(e)) free = free && !indices.count(v);
      });
      if (auto* load = std::get_if<Load>(&inner.node))
        free = free && !written.count(load->access.buffer.value) &&
               (runs || (body_of(s) == nullptr && in_bounds(load->access, facts)));
    };
    look(s);
    if (const Block* body = body_of(s)) for_each_stmt(*body, look);
    return free;
  }

  bool in_bounds(const Access& access, const sym::Facts& facts) const {
    const Buffer& b = program_[access.buffer];
    for (size_t d = 0; d < access.index.size(); ++d)
      if (!facts.holds(sym::le(0, access.index[d])) || !facts.holds(sym::lt(access.index[d], b.shape[d])))
        return false;
    return true;
  }

  const Program& program_;
};

}  // namespace

void hoist(const Program& program, Nest& nest) { Hoister(program).block(nest.body, facts_of(program, nest)); }

void clean(const Program& program, Nest& nest) {
  simplify(program, nest);
  fold(nest);
  eliminate_common(nest);
  hoist(program, nest);
  eliminate_common(nest);
  fold(nest);
  eliminate_dead(nest);
}

}  // namespace stridec::loop
