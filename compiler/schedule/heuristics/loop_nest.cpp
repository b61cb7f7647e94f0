#include "compiler/schedule/heuristics/loop_nest.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "compiler/base/sort.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/vectorize_analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/loop_cost.h"
#include "compiler/schedule/directives/applies.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

// Cycles.
constexpr double kLaunch = 4000;         // costs below this do not matter
constexpr double kTaskCycles = 4000;     // least work of a task if there are enough points
constexpr double kThreadCycles = 10000;  // least work that justifies another thread

// Rows of blocks that are transposed before the next column of blocks: as many lines as L1 holds, and as many
// pages as the TLB translates quickly.
constexpr int64_t kTurnedTile = 512;
// least size of a result transposed in tiles: exceeds any core's cache
constexpr double kFarBytes = 16 << 20;

// How a plan differs from the model's choice.
struct Variation {
  enum class Lanes { kBest, kDim, kInner } lanes = Lanes::kBest;
  Expr dim = 0;        // kDim
  double vectors = 1;  // factor on the vectors side by side
  double chunk = 1;    // factor on the points of a task
  double grain = 1;    // factor on the steps for a thread
  // Splits dims that are divided by constants, so that addresses are linear in them. Otherwise they stay
  // whole, for longer rows.
  bool split = true;
  int points = 0;     // computed together; 0: the model's choice, 1: one by one
  int64_t tile = -1;  // of a transposition; 0: none; -1: the model's choice
};

// The nest as its loops run, with its dims merged, and split or not; and its cost model.
struct Shaped {
  std::vector<LoopPlan::Reshape> reshapes;
  LoopCost cost;

  bool has_splits() const {
    return std::any_of(reshapes.begin(), reshapes.end(),
                       [](const LoopPlan::Reshape& reshape) { return reshape.split.has_value(); });
  }
  bool has_loops() const {
    const loop::Block& body = cost.nest().body;
    return std::any_of(body.begin(), body.end(), [](const loop::Stmt& stmt) { return loop::body_of(stmt); });
  }
};

// The largest constant c that divides the extent and for which some expression contains floordiv(dim, c) or
// mod(dim, c).
std::optional<int64_t> divisor_of(const loop::Program& program, const loop::Nest& nest,
                                  const loop::Dim& dim) {
  const int64_t divides = program.facts.known_divisor(dim.extent);
  std::optional<int64_t> best;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    loop::for_each_expr(stmt, [&](Expr e) {
      sym::for_each_node(e, [&](Expr node) {
        if (node.op() != sym::Op::kFloorDiv && node.op() != sym::Op::kMod) return;
        const std::optional<int64_t> c = sym::as_const(node.arg(1));
        if (!c || *c < 2 || divides % *c != 0 || dim.extent.is_const(*c) ||
            !sym::depends_on(node.arg(0), dim.var))
          return;
        const std::optional<sym::Linear> linear = sym::linear_in(node.arg(0), dim.var);
        if (linear && linear->coefficient.is_const(1)) best = std::max(best.value_or(0), *c);
      });
    });
  });
  return best;
}

std::vector<LoopPlan::Reshape> reshapes_of(const loop::Program& program, const loop::Nest& original,
                                           bool split_dims) {
  LoopPlan plan;
  loop::Nest nest = reshaped(program, original, {});
  auto apply = [&](LoopPlan::Reshape reshape) {
    plan.reshapes.push_back(std::move(reshape));
    nest = reshaped(program, original, plan);
  };
  for (int splits = 0; split_dims && splits < 8; ++splits) {
    bool split = false;
    for (const loop::Dim& dim : nest.dims)
      if (const std::optional<int64_t> c = divisor_of(program, nest, dim)) {
        apply({{}, LoopPlan::Split{dim.var, *c}});
        split = true;
        break;
      }
    if (!split) break;
  }
  for (size_t d = nest.dims.size(); d-- > 1;)
    if (can_merge(program, nest, nest.dims[d - 1].var, nest.dims[d].var))
      apply({{nest.dims[d - 1].var, nest.dims[d].var}, {}});
  return plan.reshapes;
}

// Chooses one plan.
class Chooser {
 public:
  Chooser(const loop::Program& program, const Shaped& shaped, const CpuTarget& target,
          const Variation& variation = {})
      : program_(program),
        target_(target),
        variation_(variation),
        model_(shaped.cost),
        nest_(shaped.cost.nest()),
        plan_{.reshapes = shaped.reshapes} {}

  // The nest's cycles, after choose().
  double cycles() const { return cycles_; }

  LoopPlan choose() {
    choose_lanes();
    choose_order();
    choose_points();
    choose_tasks();
    return plan_;
  }

 private:
  using At = LoopCost::At;

  // ---- lanes ----

  // A body without loops that stores along one dim and loads along another: blocks are transposed in
  // registers.
  bool choose_transpose() {
    Expr along = 0, across = 0;
    bool plain = true;
    DType out_dtype = DType::kF32;
    auto unit = [&](const loop::Access& access) -> const loop::Dim* {
      for (const loop::Dim& dim : nest_.dims)
        if (const auto stride = model_.stride(access, dim.var); stride && stride->is_const(1)) return &dim;
      return nullptr;
    };
    for (const loop::Stmt& stmt : nest_.body) {
      if (loop::body_of(stmt) || std::holds_alternative<loop::Bind>(stmt.node)) plain = false;
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
        const loop::Dim* dim = unit(store->access);
        plain = plain && dim && !store->update && (along.is_const() || along == dim->var);
        if (dim) along = dim->var;
        out_dtype = program_[store->access.buffer].dtype;
      }
    }
    if (!plain || along.is_const()) return false;
    for (const loop::Stmt& stmt : nest_.body)
      if (const auto* load = std::get_if<loop::Load>(&stmt.node); load && load->access.mask.is_const(1)) {
        const loop::Dim* dim = unit(load->access);
        const auto step = model_.stride(load->access, along);
        if (dim && dim->var != along && step && !step->is_const(0) && !sym::has_index(*step))
          across = dim->var;
      }
    if (across.is_const()) return false;
    const int size = std::min(model_.lanes(along), 16);
    auto extent = [&](Expr var) {
      for (const loop::Dim& dim : nest_.dims)
        if (dim.var == var) return sym::has_index(dim.extent) ? 0.0 : model_.trips(dim.extent);
      return 0.0;
    };
    if (extent(along) < size || extent(across) < size) return false;
    lane_dim_ = along;
    plan_.width[along] = size;
    plan_.transpose.emplace(across, size);
    const double bytes = model_.points() * byte_size(out_dtype);
    const int64_t tile = variation_.tile >= 0 ? variation_.tile : bytes >= kFarBytes ? kTurnedTile : 0;
    for (const loop::Dim& dim : nest_.dims) {
      const sym::Interval range = model_.facts().bounds(dim.extent);
      if (dim.var == across && tile > 0 && !(range.has_hi() && range.hi <= tile))
        plan_.blocks.push_back({across, tile});
    }
    point_cycles_ = 2;
    cycles_ = point_cycles_ * model_.points();
    return true;
  }

  // Cycles of the whole nest. A choice serves single requests and large batches; neither may pay for the
  // other.
  struct Cycles {
    double typical, least;
    double score() const { return (typical + kLaunch) * (least + kLaunch); }
  };
  template <class Cost>
  Cycles at_both_sizes(Cost&& cost) {
    const double least = cost(At::kLeast);
    return {cost(At::kTypical), least};
  }
  double with_lanes(const loop::Dim& dim, At at, const LoopCost::Together* together = nullptr) const {
    return model_.along(nest_.body, dim, at, true, together) * model_.points(at) /
           model_.trips(dim.extent, at);
  }

  void choose_lanes() {
    using Lanes = Variation::Lanes;
    if (variation_.lanes == Lanes::kBest && choose_transpose()) return;
    std::vector<Expr> inner;  // vectorised at typical sizes
    Cycles best_cycles = at_both_sizes([&](At at) {
      inner.clear();
      point_cycles_ = model_.best(nest_.body, at, inner) + kLoopOverhead;
      return point_cycles_ * model_.points(at);
    });
    const loop::Dim* along = nullptr;
    bool triangular = false;
    for (const loop::Dim& dim : nest_.dims) triangular = triangular || sym::has_index(dim.extent);
    // Updates run in order, and vectorisation keeps this order: lanes update in sequence.
    for (const loop::Dim& dim : nest_.dims) {
      if (triangular || variation_.lanes == Lanes::kInner) break;
      if (variation_.lanes == Lanes::kDim && !(dim.var == variation_.dim)) continue;
      if (loop::moves_extents(nest_.body, dim.var)) continue;
      const Cycles with = at_both_sizes([&](At at) { return with_lanes(dim, at); });
      if (with.score() < best_cycles.score() || variation_.lanes == Lanes::kDim) {
        best_cycles = with;
        along = &dim;
      }
    }
    cycles_ = best_cycles.typical;
    if (along) {
      lane_dim_ = along->var;
      plan_.width[along->var] = wide(*along);
      // A masked gather is as slow as its points one by one.
      if (loop::walks(nest_)) plan_.single = along->var;
      point_cycles_ = cycles_ / model_.points();
      return;
    }
    for (const Expr& var : inner) plan_.width[var] = model_.lanes(var);
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (!std::holds_alternative<loop::Reduce>(stmt.node)) return;
      for (const loop::Dim& dim : loop::dims_of(stmt))
        if (plan_.width.count(dim.var))
          plan_.accumulators[dim.var] = std::clamp(static_cast<int>(4 * variation_.vectors), 1, 8);
    });
  }

  // The number of lanes along `dim`. Several vectors side by side hide the latency of a reduction or scan
  // inside the lanes, where each step waits for the previous one or for memory. For scans this requires
  // vectors that are contiguous in memory; others are gathered, which costs more the longer they are.
  int wide(const loop::Dim& dim) const {
    bool reduces = false, scans = false, whole = true;
    int lets = 0;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      reduces = reduces || std::holds_alternative<loop::Reduce>(stmt.node);
      scans = scans || std::holds_alternative<loop::Scan>(stmt.node);
      if (const loop::Access* access = loop::access_of(stmt)) {
        const auto stride = model_.stride(*access, dim.var);
        whole = whole && stride && (stride->is_const(0) || stride->is_const(1));
      }
      lets += std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Load>(stmt.node);
    });
    const int lanes = model_.lanes(dim.var);
    int width = lanes;
    const bool waits = ((reduces || (scans && whole)) && lets <= 8) || loop::walks(nest_);
    while (waits && width < 64 && width < 4 * lanes && model_.trips(dim.extent) >= 2 * width) width *= 2;
    return std::clamp(static_cast<int>(width * variation_.vectors), std::min(lanes, 64), 64);
  }

  // ---- loops and tasks ----

  // Outer loops follow the output's memory order, so that it is written in order.
  void choose_order() {
    const loop::Access* out = nullptr;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node);
          store && !out && program_[store->access.buffer].storage != loop::Storage::kLocal)
        out = &store->access;
    });
    order_ = nest_.dims;
    if (out) {
      std::vector<std::tuple<double, size_t>> keyed;  // by decreasing stride, ties as written
      for (const loop::Dim& dim : nest_.dims) {
        const std::optional<Expr> stride = model_.stride(*out, dim.var);
        if (!stride || stride->is_const(0) || sym::has_index(dim.extent) || sym::has_index(*stride)) return;
        keyed.emplace_back(-std::fabs(typical(*stride, model_.facts())), keyed.size());
      }
      std::sort(keyed.begin(), keyed.end());
      for (size_t d = 0; d < order_.size(); ++d) order_[d] = nest_.dims[std::get<1>(keyed[d])];
    }
  }

  // If a loop loads a vector that neighbouring points share, a few of these points are computed together. The
  // partial results of all of them stay in registers. Along the last dim of the tasks they are neighbours of
  // a task's range; along another dim, a task has a loop over that dim.
  void choose_points() {
    if (variation_.points == 1 || !lane_dim_ || plan_.transpose || plan_.single) return;
    const loop::Dim *last = nullptr, *lane = nullptr;
    for (const loop::Dim& dim : order_) {
      if (sym::has_index(dim.extent)) return;
      (dim.var == *lane_dim_ ? lane : last) = &dim;
    }
    if (!last || try_points(*last, *lane, true) || variation_.points) return;
    // `last`: where pieces of a row are tasks.
    for (size_t d = order_.size(); d-- > 0 && plan_.points.empty();)
      if (&order_[d] != lane && (&order_[d] != last || in_pieces(lane))) try_points(order_[d], *lane, false);
  }

  // Computes points along the dim together if that pays. `last`: it is the last dim of the tasks.
  bool try_points(const loop::Dim& along, const loop::Dim& lane, bool last) {
    constexpr double kGain = 0.8;  // highest share of the time at which it pays
    const int count = variation_.points ? variation_.points : last ? kTogether : points_of(along);
    if (count < 2 || model_.trips(along.extent) < count || !can_unroll_and_jam(program_, nest_, along.var))
      return false;
    if (last && !variation_.points && in_pieces(&lane)) return false;
    const LoopCost::Together together{along.var, count};
    int sums = 0;
    bool shared = false;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
      if (!reduce) return;
      sums += static_cast<int>(reduce->results.size());
      for (const loop::Stmt& inner : reduce->body)
        if (const loop::Access* access = loop::access_of(inner);
            access && LoopCost::is_shared(inner, *access, together)) {
          const auto stride = model_.stride(*access, lane.var);
          shared = shared || (stride && !stride->is_const(0));
        }
    });
    const double with = with_lanes(lane, At::kTypical, &together);
    if (!shared || with > (variation_.points ? 1 : kGain) * cycles_) return false;
    plan_.points.push_back({along.var, count});
    if (!last) inner_dim_ = along.var;
    int& width = plan_.width[lane.var];
    const int registers = target_.avx512 ? 32 : 16, lanes = model_.lanes(lane.var);
    while (width > lanes && width / lanes * count * sums > registers / 2) width /= 2;
    point_cycles_ *= with / cycles_;
    cycles_ = with;
    return true;
  }

  // How many points of a short dim are computed together, with as few left over as possible.
  static constexpr int kTogether = 4;
  int points_of(const loop::Dim& along) const {
    const auto extent = sym::as_const(along.extent);
    int best = kTogether;
    for (int count = kTogether; extent && count >= 2; --count)
      if (*extent % count < *extent % best || *extent < best) best = count;
    return best;
  }

  // Whether pieces of a row are tasks: if there is a single row, or rows are long and may be few.
  bool in_pieces(const loop::Dim* lane) const {
    if (!lane) return false;
    double least_points = 1, task = point_cycles_ * model_.trips(lane->extent);
    bool outer = false;
    for (const loop::Dim& dim : order_) {
      if (dim.var == lane->var || is_loop_of_task(dim)) continue;
      outer = true;
      least_points *= model_.trips(dim.extent, At::kLeast);
    }
    return !outer || (least_points < 16 && task > 8 * kTaskCycles);
  }

  bool is_loop_of_task(const loop::Dim& dim) const {
    return (plan_.transpose && dim.var == plan_.transpose->first) || inner_dim_ == dim.var;
  }

  void choose_tasks() {
    if (loop::effects_of(nest_).updates) return;  // updates run in order
    std::vector<loop::Dim> outer;
    const loop::Dim* lane = nullptr;
    for (const loop::Dim& dim : order_) {
      if (sym::has_index(dim.extent)) return;  // one task
      if (lane_dim_ && dim.var == *lane_dim_)
        lane = &dim;
      else if (!is_loop_of_task(dim))
        outer.push_back(dim);
      else
        point_cycles_ *= model_.trips(dim.extent);  // a loop within the task
    }
    for (const loop::Dim& dim : outer) plan_.tasks.push_back(dim.var);
    const double task = point_cycles_ * (lane ? model_.trips(lane->extent) : 1);
    const bool neighbours = !plan_.points.empty() && !inner_dim_;
    if (!neighbours && in_pieces(lane)) {
      plan_.tasks.push_back(lane->var);
      const int width = plan_.width.at(lane->var);
      const double points = variation_.chunk * kTaskCycles / point_cycles_;
      plan_.chunk = std::max<int64_t>(1, static_cast<int64_t>(points / width)) * width;
    } else if (outer.size() > 1 &&
               task < variation_.chunk * kTaskCycles) {  // with one dim, neighbours are one range anyway
      plan_.chunk =
          std::max<int64_t>(1, std::min<int64_t>(static_cast<int64_t>(variation_.chunk * kTaskCycles / task),
                                                 static_cast<int64_t>(model_.trips(outer.back().extent))));
    }
    if (neighbours && outer.size() > 1) {
      const int64_t count = plan_.points[0].factor;
      plan_.chunk = (plan_.chunk + count - 1) / count * count;
    }
    const double cycles_of_step = cycles_ / model_.steps();
    plan_.grain =
        std::max<int64_t>(1, static_cast<int64_t>(variation_.grain * kThreadCycles / cycles_of_step));
  }

  const loop::Program& program_;
  const CpuTarget& target_;
  const Variation variation_;
  const LoopCost& model_;
  const loop::Nest& nest_;
  LoopPlan plan_;
  std::optional<Expr> lane_dim_, inner_dim_;  // inner_dim_: of points computed together, if not of the tasks
  std::vector<loop::Dim> order_;
  double point_cycles_ = 1;
  double cycles_ = 0;  // of the whole nest
};

// A nest with its dims split and with its dims whole, each built on demand.
class Shapes {
 public:
  Shapes(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : program_(program), nest_(nest), target_(target) {}

  const Shaped& of(bool split) {
    std::unique_ptr<Shaped>& shaped = shaped_[split];
    if (!shaped) {
      LoopPlan plan{.reshapes = reshapes_of(program_, nest_, split)};
      loop::Nest nest = reshaped(program_, nest_, plan);
      shaped.reset(new Shaped{std::move(plan.reshapes), {program_, std::move(nest), target_}});
    }
    return *shaped;
  }
  RankedLoopPlan choose(const Variation& variation) {
    Chooser chooser(program_, of(variation.split), target_, variation);
    LoopPlan plan = chooser.choose();
    return {std::move(plan), chooser.cycles()};
  }
  // Whether the model prefers split dims.
  bool likes_splits() {
    return !of(true).has_splits() || choose({}).cycles <= choose({.split = false}).cycles;
  }

 private:
  const loop::Program& program_;
  const loop::Nest& nest_;
  const CpuTarget& target_;
  std::unique_ptr<Shaped> shaped_[2];
};

}  // namespace

LoopPlan general_plan(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  Shapes shapes(program, nest, target);
  return shapes.choose({.split = shapes.likes_splits()}).plan;
}

std::vector<RankedLoopPlan> general_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  Shapes shapes(program, nest, target);
  std::vector<RankedLoopPlan> space;
  std::vector<std::vector<loop::Directive>> known;
  auto add = [&](const Variation& variation) {
    RankedLoopPlan ranked = shapes.choose(variation);
    std::vector<loop::Directive> text = directives(ranked.plan);
    if (std::find(known.begin(), known.end(), text) != known.end()) return;
    known.push_back(std::move(text));
    space.push_back(std::move(ranked));
  };
  using Lanes = Variation::Lanes;
  std::vector<Variation> lanes;
  const bool liked = shapes.likes_splits();
  for (bool split : {liked, !liked}) {
    const Shaped& shaped = shapes.of(split);
    lanes.push_back({.split = split});
    for (const loop::Dim& dim : shaped.cost.nest().dims)
      lanes.push_back({.lanes = Lanes::kDim, .dim = dim.var, .split = split});
    if (shaped.has_loops()) lanes.push_back({.lanes = Lanes::kInner, .split = split});
  }
  for (const Variation& along : lanes) add(along);
  for (Variation v : lanes) {
    for (const double times : {0.5, 2.0, 0.25, 4.0}) {
      v.vectors = times, v.chunk = 1, v.grain = 1, add(v);
      v.vectors = 1, v.chunk = times * times, add(v);
      v.chunk = 1, v.grain = times * times, add(v);
    }
    v.grain = 1;
    for (const int points : {1, 2, 4, 8}) v.points = points, add(v);
    v.points = 0;
    for (const int64_t tile : {int64_t{0}, kTurnedTile / 4, kTurnedTile, 4 * kTurnedTile})
      v.tile = tile, add(v);
  }
  return space;
}

void choose_general(loop::Program& program, const CpuTarget& target) {
  for (loop::Nest& nest : program.nests)
    if (nest.schedule == loop::Schedule{})
      nest.schedule.directives =
          directives(loop::with_provenance(nest, [&] { return general_plan(program, nest, target); }));
}

}  // namespace stridec::schedule
