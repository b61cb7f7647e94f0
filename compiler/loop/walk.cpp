#include "compiler/loop/walk.h"

#include <set>

namespace stridec::loop {
namespace {

// One definition for const and non-const statements: S is Stmt or const Stmt.
template <class S>
auto body(S& stmt) -> decltype(&std::get<For>(stmt.node).body) {
  return std::visit(
      [](auto& s) -> decltype(&std::get<For>(stmt.node).body) {
        if constexpr (requires { s.body; }) return &s.body;
        return nullptr;
      },
      stmt.node);
}

template <class S, class F>
void results(S& stmt, const F& visit) {
  std::visit(
      [&](auto& s) {
        if constexpr (requires { s.result; }) visit(s.result);
        if constexpr (requires { s.results; })
          for (auto& r : s.results) visit(r);
      },
      stmt.node);
}

template <class S, class F>
void uses(S& stmt, const F& visit) {
  std::visit(
      [&](auto& s) {
        using T = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<T, Let>)
          for (auto& a : s.args) visit(a);
        if constexpr (std::is_same_v<T, Store> || std::is_same_v<T, Bind>) visit(s.value);
        if constexpr (std::is_same_v<T, Scan>)
          for (auto& v : s.init) visit(v);
        if constexpr (requires { s.yields; })
          for (auto& v : s.yields) visit(v);
      },
      stmt.node);
}

template <class S, class F>
void exprs(S& stmt, const F& visit) {
  std::visit(
      [&](auto& s) {
        using T = std::decay_t<decltype(s)>;
        if constexpr (requires { s.access; }) {
          for (auto& e : s.access.index) visit(e);
          visit(s.access.mask);
        }
        if constexpr (std::is_same_v<T, IndexValue>) visit(s.expr);
        if constexpr (std::is_same_v<T, Bind>) visit(s.extent);
        if constexpr (std::is_same_v<T, Scan>) visit(s.dim.extent);
        if constexpr (requires { s.dims; })
          for (auto& d : s.dims) visit(d.extent);
      },
      stmt.node);
}

template <class S, class F>
void indices(S& stmt, const F& visit) {
  std::visit(
      [&](auto& s) {
        using T = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<T, Bind>) visit(s.var);
        if constexpr (std::is_same_v<T, Scan>) visit(s.dim.var);
        if constexpr (requires { s.dims; })
          for (auto& d : s.dims) visit(d.var);
      },
      stmt.node);
}

template <class B, class F>
void statements(B& block, const F& visit) {
  for (auto& stmt : block) {
    visit(stmt);
    if (auto* inner = body(stmt)) statements(*inner, visit);
  }
}

template <class S, class F>
void steps_in(S& steps, const F& visit) {
  for (auto& step : steps) {
    visit(step);
    if (auto* branch = std::get_if<If>(&step.node)) {
      steps_in(branch->then_steps, visit);
      steps_in(branch->else_steps, visit);
    } else if (auto* loop = std::get_if<While>(&step.node)) {
      steps_in(loop->body, visit);
    } else if (auto* strips = std::get_if<TiledGroup>(&step.node)) {
      steps_in(strips->body, visit);
    }
  }
}

}  // namespace

Block* body_of(Stmt& stmt) { return body(stmt); }
const Block* body_of(const Stmt& stmt) { return body(stmt); }

std::vector<Dim> dims_of(const Stmt& stmt) {
  return std::visit(
      [](auto& s) -> std::vector<Dim> {
        if constexpr (requires { s.dims; }) return s.dims;
        if constexpr (requires { s.dim; }) return {s.dim};
        return {};
      },
      stmt.node);
}

void for_each_stmt(Block& block, const std::function<void(Stmt&)>& visit) { statements(block, visit); }
void for_each_stmt(const Block& block, const std::function<void(const Stmt&)>& visit) {
  statements(block, visit);
}
void for_each_result(Stmt& stmt, const std::function<void(ValueId&)>& visit) { results(stmt, visit); }
void for_each_result(const Stmt& stmt, const std::function<void(ValueId)>& visit) { results(stmt, visit); }
const Stmt* definition(const Block& block, ValueId id) {
  for (const Stmt& stmt : block) {
    bool found = false;
    for_each_result(stmt, [&](ValueId result) { found = found || result == id; });
    if (found) return &stmt;
  }
  return nullptr;
}

void for_each_use(Stmt& stmt, const std::function<void(ValueId&)>& visit) { uses(stmt, visit); }
void for_each_use(const Stmt& stmt, const std::function<void(ValueId)>& visit) { uses(stmt, visit); }
void for_each_expr(Stmt& stmt, const std::function<void(sym::Expr&)>& visit) { exprs(stmt, visit); }
void for_each_expr(const Stmt& stmt, const std::function<void(sym::Expr)>& visit) { exprs(stmt, visit); }
void for_each_index(Stmt& stmt, const std::function<void(sym::Expr&)>& visit) { indices(stmt, visit); }
void for_each_index(const Stmt& stmt, const std::function<void(sym::Expr)>& visit) { indices(stmt, visit); }
void for_each_step(Steps& steps, const std::function<void(Step&)>& visit) { steps_in(steps, visit); }
void for_each_step(const Steps& steps, const std::function<void(const Step&)>& visit) {
  steps_in(steps, visit);
}

Access* access_of(Stmt& stmt) {
  if (auto* load = std::get_if<Load>(&stmt.node)) return &load->access;
  if (auto* store = std::get_if<Store>(&stmt.node)) return &store->access;
  return nullptr;
}

const Access* access_of(const Stmt& stmt) { return access_of(const_cast<Stmt&>(stmt)); }

void for_each_block(Steps& steps, const std::function<void(Steps&)>& visit) {
  for (Step& step : steps) {
    if (auto* branch = std::get_if<If>(&step.node)) {
      for_each_block(branch->then_steps, visit);
      for_each_block(branch->else_steps, visit);
    } else if (auto* loop = std::get_if<While>(&step.node)) {
      for_each_block(loop->body, visit);
    } else if (auto* strips = std::get_if<TiledGroup>(&step.node)) {
      for_each_block(strips->body, visit);
    }
  }
  visit(steps);
}

std::vector<const TiledGroup*> tiled_groups_of(const Program& program) {
  std::vector<const TiledGroup*> found;
  for_each_step(program.steps, [&](const Step& step) {
    if (const auto* strips = std::get_if<TiledGroup>(&step.node)) found.push_back(strips);
  });
  return found;
}

std::set<NestId> launched_in_groups(const Program& program) {
  std::set<NestId> nests;
  for (const TiledGroup* strips : tiled_groups_of(program))
    for (const Step& step : strips->body) nests.insert(std::get<Launch>(step.node).nest);
  return nests;
}

std::vector<BufferId> buffers_of(const Nest& nest) {
  std::vector<BufferId> out;
  std::set<BufferId> seen;
  for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const Access* access = access_of(stmt);
    if (access && seen.insert(access->buffer).second) out.push_back(access->buffer);
  });
  return out;
}

}  // namespace stridec::loop
