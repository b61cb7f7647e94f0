#include "compiler/schedule/fusion/gemv_epilogue.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/base/sort.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// A nest over the columns of a GEMV by weights that stores one value per column, in order.
struct GemvByWeights {
  Dim column;
  int64_t count = 0;
  BufferId buffer;
  size_t store = 0;  // in the nest's body
};

std::optional<GemvByWeights> product_of(const Program& program, const Nest& nest) {
  if (nest.dims.size() != 1 || nest.schedule.directives.empty() || !nest.schedule.kernel.empty())
    return std::nullopt;
  const auto count = sym::as_const(nest.dims[0].extent);
  if (!count) return std::nullopt;
  std::optional<GemvByWeights> out;
  bool sums = false, plain = true;
  for (size_t at = 0; at < nest.body.size(); ++at) {
    const Stmt& stmt = nest.body[at];
    sums = sums || std::holds_alternative<loop::Reduce>(stmt.node);
    plain = plain && !std::holds_alternative<loop::Bind>(stmt.node) &&
            !std::holds_alternative<loop::Scan>(stmt.node);
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store || program[store->access.buffer].storage == loop::Storage::kLocal) continue;
    if (out || store->update || !store->access.mask.is_const(1) ||
        program[store->access.buffer].storage != loop::Storage::kArena ||
        loop::offset_of(program, store->access) != nest.dims[0].var)
      return std::nullopt;
    out = GemvByWeights{nest.dims[0], *count, store->access.buffer, at};
  }
  return sums && plain ? out : std::nullopt;
}

// The part of a loop of the small nest that computes one store.
struct Piece {
  std::vector<Dim> dims;
  Block body;
};

// The statements of the loop that the store depends on, and the store. Nothing if one of them is a loop.
std::optional<Piece> piece_of(const loop::For& loop, size_t store) {
  std::vector<bool> taken(loop.body.size());
  std::set<int32_t> values;
  std::set<Expr, sym::ExprLess> bound;
  for (size_t at = store + 1; at-- > 0;) {
    const Stmt& stmt = loop.body[at];
    if (loop::body_of(stmt)) return std::nullopt;
    bool wanted = at == store;
    loop::for_each_result(stmt, [&](ValueId id) { wanted = wanted || values.contains(id.value); });
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) wanted = wanted || bound.contains(bind->var);
    if (!wanted) continue;
    taken[at] = true;
    loop::for_each_use(stmt, [&](ValueId id) { values.insert(id.value); });
    loop::for_each_expr(stmt, [&](Expr e) {
      for (Expr var : sym::free_vars(e)) bound.insert(var);
    });
  }
  Piece piece{loop.dims, {}};
  for (size_t at = 0; at <= store; ++at)
    if (taken[at]) piece.body.push_back(loop.body[at]);
  return piece;
}

// Whether the accesses never touch the same element, in any iterations of the loops around them.
bool apart(const Program& program, const Nest& nest, const std::vector<Dim>& dims, const Access& a,
           const std::vector<Dim>& others, const Access& b) {
  sym::Facts x = loop::facts_of(program, nest), y = x;
  for (const Dim& dim : dims) x.set_index(dim.var, dim.extent);
  for (const Dim& dim : others) y.set_index(dim.var, dim.extent);
  for (size_t d = 0; d < a.index.size(); ++d) {
    const sym::Interval i = x.bounds(a.index[d]), j = y.bounds(b.index[d]);
    if ((i.has_hi() && j.has_lo() && i.hi < j.lo) || (j.has_hi() && i.has_lo() && j.hi < i.lo)) return true;
  }
  return false;
}

class Joiner {
 public:
  Joiner(const Program& program, const Nest& product, const GemvByWeights& columns, const Nest& small)
      : program_(program), product_(product), columns_(columns), small_(small), effects_(effects_of(small)) {}

  std::optional<Nest> run() {
    if (!split_concats() || !find_distance()) return std::nullopt;
    made_ = product_;
    made_.dims.clear();
    made_.body.clear();
    names_.emplace(made_);
    if (!print_points()) return std::nullopt;
    for (const Stmt& stmt : small_.body)
      if (!loop::body_of(stmt)) made_.body.push_back(names_->clone(small_, stmt));
    for (const Piece& piece : pieces_)
      if (!print(piece)) return std::nullopt;
    made_.name = fused_name(product_, small_);
    join_nodes(made_, small_.nodes);
    loop::clean(program_, made_);
    return std::move(made_);
  }

 private:
  // A store that a point has executed; loads of the same element use its value.
  struct Made {
    Access access;  // over the point's dims, its mask as well
    ValueId value;
  };

  bool reads_columns(const Stmt& stmt) const {
    const Access* access = loop::access_of(stmt);
    return access && access->buffer == columns_.buffer;
  }
  bool is_passed(const Stmt& stmt) const {  // whether it loads what another loop of the nest stores
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    return load && writes(effects_, load->access.buffer);
  }

  // Splits the loops into pieces, in order, whose stores do not overlap.
  bool split_concats() {
    std::set<int32_t> outside;
    for (const Stmt& stmt : small_.body) {
      const auto* loop = std::get_if<loop::For>(&stmt.node);
      if (!loop) {
        if (loop::body_of(stmt) || std::holds_alternative<loop::Store>(stmt.node) || reads_columns(stmt) ||
            is_passed(stmt))
          return false;
        loop::for_each_result(stmt, [&](ValueId id) { outside.insert(id.value); });
        continue;
      }
      for (size_t at = 0; at < loop->body.size(); ++at) {
        const auto* store = std::get_if<loop::Store>(&loop->body[at].node);
        if (!store) continue;
        auto piece = piece_of(*loop, at);
        if (!piece || store->update || !store->access.mask.is_const(1)) return false;
        // A bounds check would run at every point, so it must be on a value common to all points.
        for (const Stmt& inner : piece->body)
          if (const auto* bind = std::get_if<loop::Bind>(&inner.node);
              bind && !outside.contains(bind->value.value))
            return false;
        for (const Piece& other : pieces_) {
          const Access& there = *loop::access_of(other.body.back());
          if (there.buffer == store->access.buffer &&
              !apart(program_, small_, piece->dims, store->access, other.dims, there))
            return false;
        }
        pieces_.push_back(*std::move(piece));
      }
    }
    return !pieces_.empty();
  }

  // Finds the distance between the two columns that one iteration reads.
  bool find_distance() {
    for (const Piece& piece : pieces_) {
      const auto read = columns_read(piece);
      if (!read || read->size() < 2) continue;
      const auto distance = sym::as_const((*read)[1] - (*read)[0]);
      if (read->size() > 2 || !distance) return false;
      if (distance_ > 0 && distance_ != std::abs(*distance)) return false;
      distance_ = std::abs(*distance);
    }
    return distance_ == 0 || columns_.count % (2 * distance_) == 0;
  }

  // The distinct columns that the piece reads; nothing if it reads none.
  std::optional<std::vector<Expr>> columns_read(const Piece& piece) const {
    sym::Facts facts = loop::facts_of(program_, small_);
    for (const Dim& dim : piece.dims) facts.set_index(dim.var, dim.extent);
    std::vector<Expr> out;
    for (const Stmt& stmt : piece.body) {
      if (!reads_columns(stmt)) continue;
      const Expr at = sym::simplify(loop::offset_of(program_, *loop::access_of(stmt)), facts);
      if (std::find(out.begin(), out.end(), at) == out.end()) out.push_back(at);
    }
    return out.empty() ? std::nullopt : std::optional(out);
  }

  // Emits the GEMV's body for each column of a point.
  bool print_points() {
    const Expr outer = names_->fresh_index(columns_.column.var),
               inner = names_->fresh_index(columns_.column.var);
    if (distance_ > 0) {
      made_.dims = {{outer, columns_.count / (2 * distance_)}, {inner, distance_}};
      for (int way = 0; way < 2; ++way) at_.push_back(outer * (2 * distance_) + way * distance_ + inner);
    } else {
      made_.dims = {{outer, columns_.column.extent}};
      at_ = {outer};
    }
    facts_ = loop::facts_of(program_, made_);
    std::vector<bool> own(product_.values.size()), depends(product_.body.size());
    for (size_t i = 0; i < product_.body.size(); ++i) {
      const Block one = {product_.body[i]};
      std::set<int32_t> inside;
      loop::for_each_stmt(one, [&](const Stmt& stmt) {
        loop::for_each_expr(
            stmt, [&](Expr e) { depends[i] = depends[i] || sym::depends_on(e, columns_.column.var); });
        loop::for_each_use(stmt, [&](ValueId id) { depends[i] = depends[i] || own[id.value]; });
      });
      if (!depends[i]) {
        made_.body.push_back(names_->clone(product_, product_.body[i]));
        continue;
      }
      bool stores = false;
      loop::for_each_stmt(one, [&](const Stmt& stmt) {
        stores = stores || std::holds_alternative<loop::Store>(stmt.node);
        loop::for_each_result(stmt, [&](ValueId id) { own[id.value] = true; });
      });
      if (stores && i != columns_.store) return false;
    }
    for (const Expr column : at_) {
      names_->map(columns_.column.var, column);
      for (size_t i = 0; i < product_.body.size(); ++i)
        if (depends[i] && i != columns_.store)
          made_.body.push_back(names_->clone(product_, product_.body[i]));
      results_.push_back(names_->value(std::get<loop::Store>(product_.body[columns_.store].node).value));
    }
    names_->forget();
    return true;
  }

  // The iteration of a piece that a point executes, and the condition under which there is one.
  struct Round {
    sym::Substitution dims;
    Expr mask;
  };

  // The iteration whose first column `first`, an expression of the piece's dims, is the point's column `at`.
  std::optional<Round> round_at(const Piece& piece, Expr first, Expr at) const {
    std::vector<std::pair<Dim, int64_t>> steps;
    Expr rest = first;
    for (const Dim& dim : piece.dims) {
      const auto linear = sym::linear_in(first, dim.var);
      const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (!step || *step <= 0 || !dim.extent.is_const()) return std::nullopt;
      steps.emplace_back(dim, *step);
      rest = sym::substitute(rest, dim.var, 0);
    }
    if (!rest.is_const()) return std::nullopt;
    sort_stable(steps, [](const auto& a, const auto& b) { return a.second > b.second; });
    int64_t inside = 1;
    for (size_t d = steps.size(); d-- > 0;) {
      if (steps[d].second < inside) return std::nullopt;
      inside = steps[d].second * sym::as_const(steps[d].first.extent).value();
    }
    Round out{{}, 1};
    Expr left = at - rest;
    std::vector<Expr> conditions;
    for (const auto& [dim, step] : steps) {
      const Expr value = sym::simplify(sym::floordiv(left, step), facts_);
      left = sym::simplify(left - value * step, facts_);
      out.dims[dim.var] = value;
      conditions.push_back(sym::le(0, value));
      conditions.push_back(sym::lt(value, dim.extent));
    }
    conditions.push_back(sym::eq(left, 0));
    out.mask = sym::simplify(sym::logical_and(conditions), facts_);
    return out;
  }

  // The iteration whose load reads what a point has stored at `made`.
  std::optional<Round> round_of(const Piece& piece, const Access& load, const Made& made) const {
    Round out{{}, made.access.mask};
    for (size_t d = 0; d < load.index.size(); ++d) {
      const std::vector<Expr> vars = sym::free_vars(load.index[d]);
      if (vars.empty()) continue;
      const auto linear = vars.size() == 1 ? sym::linear_in(load.index[d], vars[0]) : std::nullopt;
      if (!linear || !linear->coefficient.is_const(1) || out.dims.contains(vars[0])) return std::nullopt;
      out.dims[vars[0]] = sym::simplify(made.access.index[d] - linear->rest, facts_);
    }
    for (const Dim& dim : piece.dims)
      if (!out.dims.contains(dim.var)) return std::nullopt;
    return out.dims.size() == piece.dims.size() ? std::optional(out) : std::nullopt;
  }

  bool print(const Piece& piece) {
    std::vector<Round> rounds;
    if (const auto read = columns_read(piece)) {
      Expr first = (*read)[0];
      if (read->size() > 1 && sym::as_const((*read)[1] - first).value() < 0) first = (*read)[1];
      for (size_t way = 0; way < at_.size(); ++way) {
        auto round = round_at(piece, first, at_[way]);
        if (!round) return false;
        if (round->mask.is_const(0)) continue;
        if (read->size() > 1 && way > 0)
          return false;  // an iteration would begin in the middle of a point's columns
        rounds.push_back(*std::move(round));
      }
    } else {
      const auto passed =
          std::find_if(piece.body.begin(), piece.body.end(), [&](const Stmt& s) { return is_passed(s); });
      if (passed == piece.body.end()) return false;
      const Access& load = *loop::access_of(*passed);
      for (const Made& made : made_stores_) {
        if (made.access.buffer != load.buffer) continue;
        auto round = round_of(piece, load, made);
        if (!round) return false;
        rounds.push_back(*std::move(round));
      }
    }
    for (const Round& round : rounds)
      if (!print(piece, round)) return false;
    return !rounds.empty();
  }

  bool print(const Piece& piece, const Round& round) {
    for (const auto& [var, value] : round.dims) names_->map(var, value);
    for (const Stmt& stmt : piece.body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && (reads_columns(stmt) || is_passed(stmt))) {
        const auto found = reads_columns(stmt)
                               ? column_at(names_->expr(loop::offset_of(program_, load->access)))
                               : passed_at(names_->access(load->access), round.mask);
        if (!found) return false;
        names_->map(load->result, *found);
        continue;
      }
      Stmt copy = names_->clone(small_, stmt);
      if (auto* from = std::get_if<loop::Load>(&copy.node)) {
        if (!inside(from->access)) {
          from->access.mask = sym::simplify(sym::logical_and(from->access.mask, round.mask), facts_);
          from->fill = loop::int_scalar(program_[from->access.buffer].dtype, 0);
        }
      } else if (auto* to = std::get_if<loop::Store>(&copy.node)) {
        to->access.mask = round.mask;
        for (Expr& index : to->access.index) index = sym::simplify(index, facts_);
        made_stores_.push_back({to->access, to->value});
        // Stores to local buffers are dropped: only loads in this nest read them, and those use the values.
        if (program_[to->access.buffer].storage == loop::Storage::kLocal) continue;
      }
      made_.body.push_back(std::move(copy));
    }
    return true;
  }

  std::optional<ValueId> column_at(Expr place) const {
    for (size_t way = 0; way < at_.size(); ++way)
      if (sym::simplify(place - at_[way], facts_).is_const(0)) return results_[way];
    return std::nullopt;
  }

  std::optional<ValueId> passed_at(const Access& access, Expr mask) const {
    for (const Made& made : made_stores_) {
      if (made.access.buffer != access.buffer || made.access.mask != mask) continue;
      bool same = true;
      for (size_t d = 0; d < access.index.size(); ++d)
        same = same && sym::simplify(access.index[d] - made.access.index[d], facts_).is_const(0);
      if (same) return made.value;
    }
    return std::nullopt;
  }

  bool inside(const Access& access) const {
    const loop::Buffer& buffer = program_[access.buffer];
    for (size_t d = 0; d < access.index.size(); ++d)
      if (!facts_.holds(sym::le(0, access.index[d])) ||
          !facts_.holds(sym::lt(access.index[d], buffer.shape[d])))
        return false;
    return true;
  }

  const Program& program_;
  const Nest& product_;
  const GemvByWeights& columns_;
  const Nest& small_;
  const Effects effects_;
  std::vector<Piece> pieces_;
  int64_t distance_ = 0;
  Nest made_;
  std::optional<loop::Cloner> names_;
  sym::Facts facts_;
  std::vector<Expr> at_;          // columns of a point
  std::vector<ValueId> results_;  // the GEMV's results for these columns
  std::vector<Made> made_stores_;
};

// Splits the small nest into `early`, which does not depend on the columns, and `late`, which does. `late`
// has no statements if the nest cannot be split. `passed`: local buffers that `early` writes and `late`
// reads.
struct Halves {
  Nest early, late;
  std::vector<BufferId> passed;
};

Halves halves_of(const Program& program, const Nest& small, BufferId columns) {
  Halves out{small, small, {}};
  out.early.body.clear();
  out.late.body.clear();
  std::set<BufferId> late = {columns}, early;
  std::set<int32_t> values, numbers;  // results of late statements; scalars computed in both halves
  for (const Stmt& stmt : small.body) {
    const Block one = {stmt};
    bool is_late = false, stores = false;
    loop::for_each_stmt(one, [&](const Stmt& inner) {
      loop::for_each_use(inner, [&](ValueId id) { is_late = is_late || values.contains(id.value); });
      if (const Access* access = loop::access_of(inner)) is_late = is_late || late.contains(access->buffer);
      stores = stores || std::holds_alternative<loop::Store>(inner.node);
    });
    if (is_late) {
      loop::for_each_stmt(one, [&](const Stmt& inner) {
        loop::for_each_result(inner, [&](ValueId id) { values.insert(id.value); });
        if (std::holds_alternative<loop::Store>(inner.node)) late.insert(loop::access_of(inner)->buffer);
      });
      out.late.body.push_back(stmt);
      continue;
    }
    // Scalars that no loop computes are recomputed in both halves.
    bool again = !stores && !loop::body_of(stmt);
    loop::for_each_use(stmt, [&](ValueId id) { again = again && numbers.contains(id.value); });
    if (again) {
      out.late.body.push_back(stmt);
      loop::for_each_result(stmt, [&](ValueId id) { numbers.insert(id.value); });
    }
    loop::for_each_stmt(one, [&](const Stmt& inner) {
      if (std::holds_alternative<loop::Store>(inner.node)) early.insert(loop::access_of(inner)->buffer);
    });
    out.early.body.push_back(stmt);
  }
  // Whatever uses the early loops' sums has to stay with them.
  std::set<int32_t> known;
  bool apart = true;
  for (const Stmt& stmt : out.late.body) {
    const Block one = {stmt};
    loop::for_each_stmt(one, [&](const Stmt& inner) {
      loop::for_each_result(inner, [&](ValueId id) { known.insert(id.value); });
    });
    loop::for_each_stmt(one, [&](const Stmt& inner) {
      loop::for_each_use(inner, [&](ValueId id) { apart = apart && known.contains(id.value); });
      const Access* access = loop::access_of(inner);
      if (access && early.contains(access->buffer) &&
          program[access->buffer].storage == loop::Storage::kLocal)
        out.passed.push_back(access->buffer);
    });
  }
  for (const BufferId id : early) apart = apart && !late.contains(id);
  if (!apart) out.late.body.clear();
  loop::clean(program, out.early);
  loop::clean(program, out.late);
  return out;
}

bool meets(const std::vector<BufferId>& written, const Effects& other) {
  return std::any_of(written.begin(), written.end(), [&](BufferId id) { return touches(other, id); });
}

// Fuses the GEMV at `at` with the small nest after it, if possible.
void join_at(Program& program, loop::Steps& steps, size_t at) {
  const auto* launch = std::get_if<Launch>(&steps[at].node);
  const auto* next = std::get_if<Launch>(&steps[at + 1].node);
  if (!launch || !next || !program[next->nest].dims.empty()) return;
  const Nest &product = program[launch->nest], &small = program[next->nest];
  const auto columns = product_of(program, product);
  if (!columns) return;
  const Flow flow(program, steps);
  const Effects &made = flow.effects(at), &taken = flow.effects(at + 1);
  if (meets(taken.writes, made) || !reads(taken, columns->buffer) ||
      flow.reader_count(columns->buffer) != 1 || flow.writer_count(columns->buffer) != 1)
    return;
  Halves halves = halves_of(program, small, columns->buffer);
  auto joined = Joiner(program, product, *columns, halves.late).run();
  if (!joined) return;
  const bool early = !effects_of(halves.early).writes.empty();
  program[launch->nest] = *std::move(joined);
  for (const BufferId id : halves.passed) program[id].storage = loop::Storage::kArena;
  if (early) {
    halves.early.schedule = {};
    program[next->nest] = std::move(halves.early);
    std::swap(steps[at], steps[at + 1]);
  } else {
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

void fuse_gemv_epilogues(Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    for (size_t at = 0; at + 1 < steps.size(); ++at) join_at(program, steps, at);
  });
  loop::eliminate_dead_code(program);  // fuse_in_block follows in the same pass
}

}  // namespace stridec::schedule
