#include "compiler/schedule/fusion/horizontal_fusion.h"

#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;

// Iterations of all loops at typical sizes, each of a few operations: too few to wake another thread.
constexpr double kSmall = 8192;
constexpr size_t kStatements = 200;
constexpr int kAhead = 16;  // steps after a nest that are considered

// The dim along which all stores are contiguous, which is vectorised; -1 if there is none.
int lanes_of(const Program& program, const Nest& nest) {
  const sym::Facts facts = loop::facts_of(program, nest);
  int found = -1;
  for (const Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store) continue;
    int along = -1;
    for (size_t d = 0; d < nest.dims.size(); ++d) {
      const auto stride = loop::stride_of(program, store->access, nest.dims[d].var, facts);
      if (stride && stride->is_const(1)) along = static_cast<int>(d);
    }
    if (along < 0 || (found >= 0 && found != along)) return -1;
    found = along;
  }
  return found;
}

class Siblings {
 public:
  Siblings(Program& program, std::vector<Decision>* decisions)
      : program_(program), decisions_(decisions), in_strips_(loop::launched_in_groups(program)) {}

  void steps(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      int joined = 0;
      for (int other = at + 1; other < static_cast<int>(steps.size()) && other <= at + kAhead;)
        if (const int made = join(steps, flow, at, other); made >= 0) {
          at = made;
          other = at + 1;
          ++joined;
        } else {
          ++other;
        }
      if (joined == 0) continue;
      Nest& nest = program_[std::get<Launch>(steps[static_cast<size_t>(at)].node).nest];
      loop::renumber(nest);
      if (decisions_)
        decisions_->push_back(
            {nest.name, "its siblings", true,
             cat("joined: ", joined + 1, " small nests over the same dims become one launch")});
    }
  }

 private:
  const Nest* small_at(const loop::Steps& steps, int at) const {
    const Nest* nest = nest_at(program_, steps, at);
    if (!nest || nest->schedule != loop::Schedule{} ||
        in_strips_.contains(std::get<Launch>(steps[static_cast<size_t>(at)].node).nest) ||
        is_contraction(*nest) || effects_of(*nest).updates || nest->dims.empty())
      return nullptr;
    // Nests with inner loops are vectorised along these. Of nests with lookups, one table at a time stays in
    // cache.
    const bool pointwise = std::none_of(nest->body.begin(), nest->body.end(), [](const Stmt& stmt) {
      return loop::body_of(stmt) != nullptr || std::holds_alternative<loop::Bind>(stmt.node);
    });
    const bool small = typical(loop::cost_of(program_, *nest).points, program_.facts) <= kSmall;
    return pointwise && small ? nest : nullptr;
  }

  // Fuses the two steps and returns the position of the result, or -1.
  int join(loop::Steps& steps, Flow& flow, int at, int other) {
    const Nest *first = small_at(steps, at), *second = first ? small_at(steps, other) : nullptr;
    if (!second || first->dims.size() != second->dims.size() ||
        statement_count(first->body) + statement_count(second->body) > kStatements)
      return -1;
    Matching matching;
    for (size_t d = 0; d < first->dims.size(); ++d) {
      if (!program_.facts.holds(sym::eq(first->dims[d].extent, second->dims[d].extent))) return -1;
      matching.emplace_back(static_cast<int>(d), static_cast<int>(d));
    }
    const int lanes = lanes_of(program_, *first);
    if (lanes < 0 || lanes_of(program_, *second) != lanes) return -1;
    std::vector<Exchange> exchanges = exchanges_between(*first, *second).ordered;
    std::erase_if(exchanges, [&](const Exchange& exchange) {
      return access_disjoint(program_, *first, *second, exchange.first[0]->buffer);
    });
    if (!exchanges.empty() && match_dims(program_, *first, *second, exchanges) != matching) return -1;
    const bool up = may_move(program_, steps, flow, other, at);
    if (!up && !may_move(program_, steps, flow, at, other)) return -1;
    return replace_steps(program_, steps, flow, up ? at : other, {up ? other : at},
                         merged_nest(*first, *second, matching));
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  const std::set<loop::NestId> in_strips_;
};

}  // namespace

void fuse_horizontally(Program& program, std::vector<Decision>* decisions) {
  Siblings siblings(program, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { siblings.steps(steps); });
}

}  // namespace stridec::schedule
