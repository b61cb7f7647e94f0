#include "compiler/schedule/fusion/block_fusion.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;

constexpr int64_t kSmall = 8192;  // iterations of all loops
constexpr int64_t kInside = 64;   // iterations that one thread runs by itself
constexpr size_t kStatements = 200;

// The number of iterations of these loops and those inside them; more than kSmall if that is not known.
int64_t steps_of(const std::vector<loop::Dim>& dims, const loop::Block& block) {
  int64_t count = 1, inside = 1;
  for (const loop::Dim& dim : dims) {
    const auto extent = sym::as_const(dim.extent);
    if (!extent || *extent > kSmall) return kSmall + 1;
    count = std::min(count * *extent, kSmall + 1);
  }
  for (const Stmt& stmt : block)
    if (const loop::Block* body = loop::body_of(stmt)) inside += steps_of(loop::dims_of(stmt), *body);
  return std::min(count * std::min(inside, kSmall + 1), kSmall + 1);
}

bool is_small(const Nest& nest) {
  if (nest.schedule != loop::Schedule{} || steps_of(nest.dims, nest.body) > kSmall) return false;
  bool plain = true;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    plain = plain && !std::holds_alternative<loop::Scan>(stmt.node) && !(store && store->update);
  });
  if (!plain) return false;
  if (!nest.dims.empty()) return steps_of({}, nest.body) <= kInside;
  return std::all_of(nest.body.begin(), nest.body.end(), [](const Stmt& stmt) {
    const loop::Block* body = loop::body_of(stmt);
    return !body || steps_of({}, *body) <= kInside;
  });
}

// Turns a nest of few points with inner loops into consecutive loops over the points, each of which a block
// distributes as a whole. Statements around the inner loops are repeated in every loop. The nest then has no
// dims.
bool distribute(const Program& program, Nest& nest) {
  if (nest.dims.empty()) return false;
  for (const loop::BufferId id : loop::buffers_of(nest))  // a local row exists only within one iteration
    if (program[id].storage == loop::Storage::kLocal) return false;
  const Effects effects = effects_of(nest);
  bool loops = false;
  for (const Stmt& stmt : nest.body) {
    if (std::holds_alternative<loop::Reduce>(stmt.node) || std::holds_alternative<loop::Scan>(stmt.node))
      return false;
    loops = loops || loop::body_of(stmt);
    // it is loaded again, so it must not have changed
    if (const auto* load = std::get_if<loop::Load>(&stmt.node))
      if (writes(effects, load->access.buffer)) return false;
  }
  if (!loops) return false;
  loop::Block out;
  loop::Cloner names(nest);
  const auto add = [&](const std::function<bool(const Stmt&)>& keep, const loop::For* inner) {
    loop::Block body;
    for (const Stmt& stmt : nest.body)
      if (!loop::body_of(stmt) && keep(stmt)) body.push_back(stmt);
    std::vector<loop::Dim> dims = nest.dims;
    if (inner) {
      dims.insert(dims.end(), inner->dims.begin(), inner->dims.end());
      body.insert(body.end(), inner->body.begin(), inner->body.end());
    }
    names.forget();
    loop::Block around;
    around.push_back({loop::For{std::move(dims), std::move(body)}});
    for (Stmt& stmt : names.clone(nest, around)) out.push_back(std::move(stmt));
  };
  add([](const Stmt&) { return true; }, nullptr);
  for (const Stmt& stmt : nest.body)
    if (const auto* inner = std::get_if<loop::For>(&stmt.node))
      add([](const Stmt& s) { return !std::holds_alternative<loop::Store>(s.node); }, inner);
  nest.body = std::move(out);
  nest.dims.clear();
  return true;
}

}  // namespace

void fuse_in_block(Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    std::optional<Flow> flow;
    const auto nest_of = [&](size_t at) -> Nest& { return program[std::get<Launch>(steps[at].node).nest]; };
    const auto small = [&](size_t at) {
      return at < steps.size() && std::holds_alternative<Launch>(steps[at].node) && is_small(nest_of(at));
    };
    const auto distributes = [&](size_t at) {
      if (!distribute(program, nest_of(at))) return false;
      loop::clean(program, nest_of(at));
      if (flow) flow->replace(static_cast<int>(at), effects_of(nest_of(at)));
      return true;
    };
    for (size_t at = 0; at < steps.size(); ++at) {
      bool joined = small(at) && distributes(at);
      while (small(at) && small(at + 1)) {
        distributes(at + 1);
        const Nest &first = nest_of(at), &second = nest_of(at + 1);
        if (statement_count(first.body) + statement_count(second.body) > kStatements) break;
        if (!flow) flow.emplace(program, steps);
        const int from = static_cast<int>(at);
        // The loops of both nests follow each other; dims that a nest still has become a loop.
        replace_steps(program, steps, *flow, from, {from + 1}, merged_nest(first, second, {}));
        joined = true;
      }
      if (joined) nest_of(at).schedule.directives = {{"team", {"512"}}};
    }
  });
}

}  // namespace stridec::schedule
