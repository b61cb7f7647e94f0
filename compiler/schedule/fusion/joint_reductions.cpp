#include "compiler/schedule/fusion/joint_reductions.h"

#include <algorithm>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Steps;
using loop::Stmt;

// Values that one pass reduces: each takes a register per element of a vector, in every thread.
constexpr size_t kMostResults = 8;

// The position of the only loop of the body, a reduction of single values, if what comes before it has no
// effects: it may be computed earlier.
std::optional<size_t> reduction_of(const Nest& nest) {
  std::optional<size_t> found;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const Stmt& stmt = nest.body[i];
    if (std::holds_alternative<loop::Bind>(stmt.node)) return std::nullopt;
    if (!found && std::holds_alternative<loop::Store>(stmt.node)) return std::nullopt;
    if (!loop::body_of(stmt)) continue;
    const auto* reduce = std::get_if<Reduce>(&stmt.node);
    if (found || !reduce || loop::arity(reduce->combine) != 1) return std::nullopt;
    for (const Stmt& inner : reduce->body)
      if (loop::body_of(inner) || std::holds_alternative<loop::Bind>(inner.node)) return std::nullopt;
    found = i;
  }
  return found;
}

const Load* load_of(const Reduce& reduce, BufferId id) {
  for (const Stmt& stmt : reduce.body)
    if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == id) return load;
  return nullptr;
}

class Joiner {
 public:
  Joiner(Program& program, Steps& steps, std::vector<Decision>* decisions)
      : program_(program), steps_(steps), decisions_(decisions), flow_(program, steps) {}

  void run() {
    for (int at = 0; at < static_cast<int>(steps_.size());) {
      const int joined = join_next(at);
      at = joined < 0 ? at + 1 : joined;
    }
  }

 private:
  Nest& nest(int at) { return program_[std::get<Launch>(steps_[static_cast<size_t>(at)].node).nest]; }

  // Joins the reduction at `at` with a later one. Returns the position of the result, or -1.
  int join_next(int at) {
    if (!is_candidate(at)) return -1;
    for (const BufferId id : flow_.effects(at).reads) {
      if (typical_bytes(program_, id) < kCachedBytes) continue;
      for (const int other : flow_.readers_between(id, at, flow_.size())) {
        if (!is_candidate(other) || depend(at, other)) continue;
        const bool down = may_move(program_, steps_, flow_, at, other);
        if (!down && !may_move(program_, steps_, flow_, other, at)) continue;
        std::optional<Nest> made = joined(nest(at), nest(other), id);
        if (!made) continue;
        if (decisions_)
          decisions_->push_back(decision_about(program_, nest(at), nest(other), true,
                                               "joined: one pass over what both reduce"));
        return replace_steps(program_, steps_, flow_, down ? other : at, {down ? at : other},
                             std::move(*made));
      }
    }
    return -1;
  }

  bool is_candidate(int at) const {
    const Nest* found = nest_at(program_, steps_, at);
    return found && !found->dims.empty() && !is_contraction(*found) && reduction_of(*found);
  }

  // Whether one step writes what the other reads or writes.
  bool depend(int at, int other) {
    return !exchanges_between(nest(at), nest(other), flow_.effects(at), flow_.effects(other)).ordered.empty();
  }

  // The two as one nest, if they load the buffer's elements in loops over equal dims.
  std::optional<Nest> joined(const Nest& first, const Nest& second, BufferId id) const {
    const size_t a_at = *reduction_of(first), b_at = *reduction_of(second);
    const auto &a = std::get<Reduce>(first.body[a_at].node), &b = std::get<Reduce>(second.body[b_at].node);
    if (a.combine != b.combine || a.results.size() + b.results.size() > kMostResults ||
        first.dims.size() != second.dims.size() || a.dims.size() != b.dims.size() ||
        first.values[a.results[0].value].dtype != second.values[b.results[0].value].dtype)
      return std::nullopt;
    const Load *from = load_of(a, id), *to = load_of(b, id);
    if (!from || !to) return std::nullopt;

    Nest out = first;
    loop::Cloner cloner(out);
    size_t matched = 0;
    for (size_t i = 0; i < from->access.index.size(); ++i) {
      const sym::Expr x = from->access.index[i], y = to->access.index[i];
      if (x == y && !sym::has_index(x)) continue;
      if (!same_loop(first.dims, x, second.dims, y) && !same_loop(a.dims, x, b.dims, y)) return std::nullopt;
      cloner.map(y, x);
      ++matched;
    }
    if (matched != first.dims.size() + a.dims.size()) return std::nullopt;

    const auto begin = [](const Block& block, size_t count) {
      return Block(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
    };
    const auto rest = [](const Block& block, size_t from) {
      return Block(block.begin() + static_cast<std::ptrdiff_t>(from), block.end());
    };
    const auto append = [](Block& to, Block more) {
      std::move(more.begin(), more.end(), std::back_inserter(to));
    };
    out.name = fused_name(first, second);
    join_nodes(out, second.nodes);
    out.body = begin(first.body, a_at);
    append(out.body, cloner.clone(second, begin(second.body, b_at)));
    Reduce both = a;
    both.byte_blocks = 0;
    append(both.body, cloner.clone(second, b.body));
    for (size_t i = 0; i < b.results.size(); ++i) {
      both.yields.push_back(cloner.value(b.yields[i]));
      both.results.push_back(cloner.fresh_value(second.values[b.results[i].value]));
      cloner.map(b.results[i], both.results.back());
    }
    out.body.push_back({std::move(both)});
    append(out.body, rest(first.body, a_at + 1));
    append(out.body, cloner.clone(second, rest(second.body, b_at + 1)));
    return out;
  }

  // Whether `x` and `y` are the variables of loops of one length.
  bool same_loop(const std::vector<loop::Dim>& xs, sym::Expr x, const std::vector<loop::Dim>& ys,
                 sym::Expr y) const {
    const auto of = [](const std::vector<loop::Dim>& dims, sym::Expr var) {
      return std::ranges::find_if(dims, [&](const loop::Dim& dim) { return dim.var == var; });
    };
    const auto p = of(xs, x), q = of(ys, y);
    return p != xs.end() && q != ys.end() && program_.facts.holds(sym::eq(p->extent, q->extent));
  }

  Program& program_;
  Steps& steps_;
  std::vector<Decision>* decisions_;
  Flow flow_;
};

}  // namespace

void join_reductions(Program& program, std::vector<Decision>* decisions) {
  loop::for_each_block(program.steps, [&](Steps& steps) { Joiner(program, steps, decisions).run(); });
}

}  // namespace stridec::schedule
