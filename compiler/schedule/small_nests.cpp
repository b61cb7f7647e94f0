#include "compiler/schedule/small_nests.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;

constexpr int64_t kSmall = 8192;  // steps of all loops
constexpr int64_t kInside = 64;   // of those that a thread does by itself
constexpr size_t kStatements = 200;

// How often the body of these loops runs, and those inside it; more than kSmall where that is not known.
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

}  // namespace

void join_small_nests(Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    const auto small = [&](size_t at) {
      const auto* launch = at < steps.size() ? std::get_if<Launch>(&steps[at].node) : nullptr;
      return launch && is_small(program[launch->nest]);
    };
    for (size_t at = 0; at < steps.size(); ++at) {
      bool joined = false;
      while (small(at) && small(at + 1)) {
        const Nest &first = program[std::get<Launch>(steps[at].node).nest],
                   &second = program[std::get<Launch>(steps[at + 1].node).nest];
        if (statement_count(first.body) + statement_count(second.body) > kStatements) break;
        Flow flow = make_flow(program, steps);
        const int from = static_cast<int>(at);
        // Its loops stand side by side, and the dims of what is not joined yet are one.
        replace_steps(program, steps, flow, from, {from + 1}, merged_nest(first, second, {}));
        joined = true;
      }
      if (joined) program[std::get<Launch>(steps[at].node).nest].schedule.directives = {{"team", {"512"}}};
    }
  });
  loop::compact(program);
}

}  // namespace stridec::schedule
