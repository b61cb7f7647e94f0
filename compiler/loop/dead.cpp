// Removes statements whose results are unused.
#include <algorithm>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

namespace {

class DeadCode {
 public:
  explicit DeadCode(const Nest& nest) : uses_(nest.values.size(), 0) {
    for_each_stmt(nest.body, [&](const Stmt& s) { count(s, +1); });
    for (const Dim& d : nest.dims) count(d.extent, +1);
  }

  void block(Block& stmts) {
    Block kept;
    for (size_t i = stmts.size(); i-- > 0;) {
      Stmt& s = stmts[i];
      if (Block* body = body_of(s)) block(*body);
      if (needed(s))
        kept.push_back(std::move(s));
      else
        forget(s);
    }
    std::reverse(kept.begin(), kept.end());
    stmts = std::move(kept);
  }

 private:
  void count(Expr e, int step) {
    if (e.is_const()) return;
    for (Expr v : sym::free_vars(e))
      if (sym::is_index(v)) indices_[v] += step;
  }
  void count(const Stmt& s, int step) {
    for_each_use(s, [&](ValueId v) { uses_[v.value] += step; });
    for_each_expr(s, [&](Expr e) { count(e, step); });
  }
  void forget(const Stmt& s) {
    count(s, -1);
    if (const Block* body = body_of(s)) for_each_stmt(*body, [&](const Stmt& inner) { count(inner, -1); });
  }
  bool needed(const Stmt& s) const {
    if (std::holds_alternative<Store>(s.node)) return true;
    if (auto* bind = std::get_if<Bind>(&s.node)) {
      auto it = indices_.find(bind->var);
      return bind->mode == Bind::OutOfRange::kError || (it != indices_.end() && it->second > 0);
    }
    bool used = false;
    for_each_result(s, [&](ValueId v) { used = used || uses_[v.value] > 0; });
    if (used) return true;
    bool effect = false;
    if (const Block* body = body_of(s))
      for_each_stmt(*body, [&](const Stmt& inner) {
        auto* bind = std::get_if<Bind>(&inner.node);
        effect = effect || std::holds_alternative<Store>(inner.node) ||
                 (bind && bind->mode == Bind::OutOfRange::kError);
      });
    return effect;
  }

  std::vector<int> uses_;
  std::unordered_map<Expr, int, sym::ExprHash> indices_;
};

}  // namespace

void eliminate_dead(Nest& nest) { DeadCode(nest).block(nest.body); }

}  // namespace stridec::loop
