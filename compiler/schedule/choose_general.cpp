#include "compiler/schedule/choose_general.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "compiler/base/sort.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/lanes.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/applies.h"
#include "compiler/schedule/choose_contraction.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

// Cycles, roughly: what matters is their order.
constexpr double kGather = 1.5;    // of one lane of an access without unit stride
constexpr double kFarGather = 2;   // ... where every lane is in a cache line of its own
constexpr double kPageGather = 4;  // ... and in a page of its own: one set of the first cache holds them all
constexpr double kSpread = 3;      // of an access whose lanes share the elements of a vector
constexpr double kNear = 8;        // ... wherever it begins
// How what a point computes differs along the lanes: not at all; by what is looked up step by step from one place, so that
// lanes stay near each other; from the start.
enum class Differs { kNever, kNear, kFar };
constexpr int64_t kManyStrips = int64_t{1} << 40;
constexpr double kScalarPenalty = 1.0;  // of one scalar access
constexpr double kLoopOverhead = 3;
constexpr double kLaunch = 4000;         // below which it does not matter what a nest takes
constexpr double kTaskCycles = 4000;     // least work of a task where there are points enough
constexpr double kThreadCycles = 20000;  // least work that is worth waking a thread

// Rows of blocks that are turned before the next column of blocks: as many lines as the first cache holds, and as many pages
// as it is quick at finding.
constexpr int64_t kTurnedTile = 512;
constexpr double kFarBytes = 16 << 20;  // of a result that is turned in tiles: no cache of a core has it

// How a plan differs from the one that the model likes best.
struct Variation {
  enum class Lanes { kBest, kDim, kInner } lanes = Lanes::kBest;
  Expr dim = 0;        // kDim
  double vectors = 1;  // times as many side by side
  double chunk = 1;    // times as many points a task
  double grain = 1;    // times as many steps for a thread
  // Dims that are divided by constants become two, so that addresses are linear in them; else they stay whole,
  // for longer rows.
  bool split = true;
  int points = 0;     // done together; 0: as the model has it, 1: one by one
  int64_t tile = -1;  // of what is turned; 0: none; -1: as the model has it
};

class Chooser {
 public:
  Chooser(const loop::Program& program, const loop::Nest& original, const CpuTarget& target,
          const Variation& variation = {})
      : program_(program), original_(original), target_(target), variation_(variation) {}

  // After choose(): what the nest costs; the parallel dims that can take lanes; whether dims were split; whether the
  // body has loops.
  double cycles() const { return cycles_; }
  std::vector<Expr> dims() const {
    std::vector<Expr> out;
    for (const loop::Dim& dim : nest_.dims) out.push_back(dim.var);
    return out;
  }
  bool has_splits() const {
    return std::any_of(plan_.reshapes.begin(), plan_.reshapes.end(),
                       [](const LoopPlan::Reshape& reshape) { return reshape.split.has_value(); });
  }
  bool has_loops() const {
    return std::any_of(nest_.body.begin(), nest_.body.end(),
                       [](const loop::Stmt& stmt) { return loop::body_of(stmt); });
  }

  LoopPlan choose() {
    reshape();
    facts_ = loop::facts_of(program_, nest_);
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) { loop::add_facts(facts_, stmt); });
    lanes_ = lanes();
    choose_lanes();
    choose_order();
    choose_points();
    choose_tasks();
    return plan_;
  }

 private:
  // ---- merges and splits ----

  void apply(LoopPlan::Reshape reshape) {
    plan_.reshapes.push_back(std::move(reshape));
    nest_ = reshaped(program_, original_, plan_);
  }

  // The largest constant c such that some expression holds floordiv(dim, c) or mod(dim, c), and c divides the
  // extent.
  std::optional<int64_t> divisor_of(const loop::Dim& dim) const {
    const int64_t divides = program_.facts.known_divisor(dim.extent);
    std::optional<int64_t> best;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
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

  void reshape() {
    nest_ = reshaped(program_, original_, {});
    for (int splits = 0; variation_.split && splits < 8; ++splits) {
      bool split = false;
      for (const loop::Dim& dim : nest_.dims)
        if (const std::optional<int64_t> c = divisor_of(dim)) {
          apply({{}, LoopPlan::Split{dim.var, *c}});
          split = true;
          break;
        }
      if (!split) break;
    }
    for (size_t d = nest_.dims.size(); d-- > 1;)
      if (can_merge(program_, nest_, nest_.dims[d - 1].var, nest_.dims[d].var))
        apply({{nest_.dims[d - 1].var, nest_.dims[d].var}, {}});
  }

  // ---- lanes ----

  // Lanes of the widest values that the nest loads or stores.
  int lanes() const {
    int bytes = 1;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (const loop::Access* access = loop::access_of(stmt)) {
        const DType dtype = program_[access->buffer].dtype;
        bytes = std::max(bytes, is_storage_float(dtype) ? 4 : byte_size(dtype));
      }
    });
    return std::clamp(target_.vector_bytes / bytes, 4, 64);
  }

  double trips(Expr extent) const {
    return smallest_ ? least_trips(extent) : std::max(1.0, typical(extent, facts_));
  }
  // Where every symbol is as small as it may be.
  double least_trips(Expr extent) const {
    const auto least = sym::evaluate(extent, [&](Expr var) -> std::optional<int64_t> {
      const sym::Interval range = facts_.bounds(var);
      return std::max<int64_t>(1, range.has_lo() ? range.lo : 1);
    });
    return least ? std::max(1.0, static_cast<double>(*least)) : 1;
  }

  // How values of a block, and the variables that it binds, differ along the lanes.
  struct Difference {
    std::map<loop::ValueId, Differs> values;
    std::map<Expr, Differs, sym::ExprLess> vars;

    Differs of(loop::ValueId id) const {
      const auto found = values.find(id);
      return found == values.end() ? Differs::kNever : found->second;
    }
    Differs of(Expr e) const {
      Differs most = Differs::kNever;
      for (const Expr& var : sym::free_vars(e))
        if (const auto found = vars.find(var); found != vars.end()) most = std::max(most, found->second);
      return most;
    }
  };

  void add_differences(const loop::Block& block, Expr var, Difference& known) const {
    for (const loop::Stmt& stmt : block) {
      const auto* scan = std::get_if<loop::Scan>(&stmt.node);
      if (scan)
        for (size_t i = 0; i < scan->carried.size(); ++i)
          known.values[scan->carried[i]] = known.of(scan->init[i]);
      if (const loop::Block* body = loop::body_of(stmt)) add_differences(*body, var, known);
      for (size_t i = 0; scan && i < scan->carried.size(); ++i)
        if (known.of(scan->yields[i]) != Differs::kNever && known.of(scan->carried[i]) == Differs::kNever)
          known.values[scan->carried[i]] = Differs::kNear;
      if (scan) add_differences(scan->body, var, known);
      Differs most = Differs::kNever;
      loop::for_each_use(stmt, [&](loop::ValueId id) { most = std::max(most, known.of(id)); });
      loop::for_each_expr(stmt, [&](Expr e) {
        most = std::max(most, sym::depends_on(e, var) ? Differs::kFar : known.of(e));
      });
      if (const auto* load = std::get_if<loop::Load>(&stmt.node);
          load && program_[load->access.buffer].storage == loop::Storage::kLocal)
        most = Differs::kFar;  // each point has its own
      loop::for_each_result(stmt, [&](loop::ValueId id) { known.values[id] = most; });
      if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) known.vars[bind->var] = most;
    }
  }

  double access_cost(const loop::Access& access, Expr var, int width, const Difference& known) const {
    Differs looked_up = Differs::kNever;
    bool moves = false;
    for (const Expr& at : access.index) {
      looked_up = std::max(looked_up, known.of(at));
      moves = moves || sym::depends_on(at, var);
    }
    if (looked_up != Differs::kNever)
      return (looked_up == Differs::kFar || moves ? kFarGather : kGather) * width;
    if (const std::optional<Expr> stride = loop::stride_of(program_, access, var, facts_)) {
      if (stride->is_const(0) || stride->is_const(1)) return 1;
      constexpr double kLine = 64, kPage = 4096;
      const double step = std::fabs(typical(*stride, facts_)) * byte_size(program_[access.buffer].dtype);
      return (step < kLine ? kGather : step < kPage ? kFarGather : kPageGather) * width;
    }
    sym::Facts facts = facts_;
    facts.set_index(loop::strip(), kManyStrips);
    const auto spread = loop::spread_of(loop::offset_of(program_, access), var, width, facts);
    if (spread && spread->elements() <= width) return kSpread;
    const Expr offset = loop::offset_of(program_, access);
    const bool near = target_.avx512 && byte_size(program_[access.buffer].dtype) == 4 &&
                      loop::grows_by_at_most_one(offset, var, facts_) &&
                      loop::never_falls(offset, var, facts_);
    return near ? kNear : kGather * width;
  }

  // Cycles of a block for one step of the loops around it, with lanes along `var` (none: all scalar).
  double cost(const loop::Block& block, const Expr* var, int width) const {
    Difference known;
    if (var) add_differences(block, *var, known);
    return cost(block, var, width, known);
  }
  double cost(const loop::Block& block, const Expr* var, int width, const Difference& known) const {
    double sum = 0;
    for (const loop::Stmt& stmt : block) {
      if (const loop::Access* access = loop::access_of(stmt)) {
        if (!var) {
          sum += kScalarPenalty;
          continue;
        }
        const double once = access_cost(*access, *var, width, known);
        sum += is_shared(stmt, *access) ? once / together_->second : once;
        if (sym::depends_on(access->mask, *var)) sum += 2;
      } else if (const auto* let = std::get_if<loop::Let>(&stmt.node)) {
        sum += 0.5 * loop::info(let->op).cost;
      } else if (const loop::Block* body = loop::body_of(stmt)) {
        double inner = cost(*body, var, width, known) + kLoopOverhead / (together_ ? together_->second : 1);
        for (const loop::Dim& dim : loop::dims_of(stmt)) inner *= trips(dim.extent);
        sum += inner;
      } else {
        sum += 0.5;
      }
    }
    return sum;
  }

  // The cheapest way to run a statement without lanes around it; fills `chosen` with the dims that take
  // lanes.
  double best(const loop::Stmt& stmt, std::vector<Expr>& chosen) const {
    const loop::Block* body = loop::body_of(stmt);
    if (!body) return cost({stmt}, nullptr, 1);
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    double all = 1;
    for (const loop::Dim& dim : dims) all *= trips(dim.extent);
    std::vector<Expr> below;
    double least = (best(*body, below) + kLoopOverhead) * all;
    if (std::holds_alternative<loop::Scan>(stmt.node)) {
      chosen.insert(chosen.end(), below.begin(), below.end());
      return least;
    }
    const Expr* along = nullptr;
    for (const loop::Dim& dim : dims) {
      if (sym::has_index(dim.extent) && dims.size() > 1) continue;
      if (!loop::stores_apart(*body, dim.var) || loop::moves_extents(*body, dim.var)) continue;
      const double n = trips(dim.extent);
      double with = (cost(*body, &dim.var, lanes_) + kLoopOverhead) * std::ceil(n / lanes_) * all / n;
      if (std::holds_alternative<loop::Reduce>(stmt.node)) with += 12;  // lanes to one number
      if (with < least) {
        least = with;
        along = &dim.var;
      }
    }
    if (along)
      chosen.push_back(*along);
    else
      chosen.insert(chosen.end(), below.begin(), below.end());
    return least;
  }
  double best(const loop::Block& block, std::vector<Expr>& chosen) const {
    double sum = 0;
    for (const loop::Stmt& stmt : block) sum += best(stmt, chosen);
    return sum;
  }

  // A body without loops that stores along one dim and loads along another: blocks turned in registers.
  bool choose_transpose() {
    Expr along = 0, across = 0;
    bool plain = true;
    DType out_dtype = DType::kF32;
    auto unit = [&](const loop::Access& access) -> const loop::Dim* {
      for (const loop::Dim& dim : nest_.dims)
        if (const auto stride = loop::stride_of(program_, access, dim.var, facts_);
            stride && stride->is_const(1))
          return &dim;
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
        const auto step = loop::stride_of(program_, load->access, along, facts_);
        if (dim && dim->var != along && step && !step->is_const(0) && !sym::has_index(*step))
          across = dim->var;
      }
    if (across.is_const()) return false;
    const int size = std::min(lanes_, 16);
    auto extent = [&](Expr var) {
      for (const loop::Dim& dim : nest_.dims)
        if (dim.var == var) return sym::has_index(dim.extent) ? 0.0 : trips(dim.extent);
      return 0.0;
    };
    if (extent(along) < size || extent(across) < size) return false;
    lane_dim_ = along;
    lanes_ = size;
    plan_.width[along] = size;
    plan_.transpose.emplace(across, size);
    const double bytes = points() * byte_size(out_dtype);
    const int64_t tile = variation_.tile >= 0 ? variation_.tile : bytes >= kFarBytes ? kTurnedTile : 0;
    for (const loop::Dim& dim : nest_.dims) {
      const sym::Interval range = facts_.bounds(dim.extent);
      if (dim.var == across && tile > 0 && !(range.has_hi() && range.hi <= tile))
        plan_.blocks.push_back({across, tile});
    }
    point_cycles_ = 2;
    cycles_ = point_cycles_;
    for (const loop::Dim& dim : nest_.dims) cycles_ *= trips(dim.extent);
    return true;
  }

  // Of the whole nest. A choice serves one request and many: neither may pay for the other.
  struct Cycles {
    double typical, least;
    double score() const { return (typical + kLaunch) * (least + kLaunch); }
  };
  template <class Cost>
  Cycles at_both_sizes(Cost&& cost) {
    smallest_ = true;
    const double least = cost();
    smallest_ = false;
    return {cost(), least};
  }
  double points() const {
    double count = 1;
    for (const loop::Dim& dim : nest_.dims) count *= trips(dim.extent);
    return count;
  }

  void choose_lanes() {
    using Lanes = Variation::Lanes;
    if (variation_.lanes == Lanes::kBest && choose_transpose()) return;
    std::vector<Expr> inner;  // those of typical sizes
    Cycles best_cycles = at_both_sizes([&] {
      inner.clear();
      point_cycles_ = best(nest_.body, inner) + kLoopOverhead;
      return point_cycles_ * points();
    });
    const loop::Dim* along = nullptr;
    bool triangular = false;
    for (const loop::Dim& dim : nest_.dims) triangular = triangular || sym::has_index(dim.extent);
    // Updates run in order; what they do to one element must not depend on the lanes' order either, and does
    // not: lanes update one after the other.
    for (const loop::Dim& dim : nest_.dims) {
      if (triangular || variation_.lanes == Lanes::kInner) break;
      if (variation_.lanes == Lanes::kDim && !(dim.var == variation_.dim)) continue;
      if (loop::moves_extents(nest_.body, dim.var)) continue;
      const Cycles with = at_both_sizes([&] {
        const double n = trips(dim.extent);
        return (cost(nest_.body, &dim.var, lanes_) + kLoopOverhead) * std::ceil(n / lanes_) * points() / n;
      });
      if (with.score() < best_cycles.score() || variation_.lanes == Lanes::kDim) {
        best_cycles = with;
        along = &dim;
      }
    }
    cycles_ = best_cycles.typical;
    if (along) {
      lane_dim_ = along->var;
      plan_.width[along->var] = wide(*along);
      if (loop::walks(nest_))
        plan_.single = along->var;  // a masked gather is as slow as its points one by one
      point_cycles_ = cycles_ / points();
      return;
    }
    for (const Expr& var : inner) plan_.width[var] = lanes_;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (!std::holds_alternative<loop::Reduce>(stmt.node)) return;
      for (const loop::Dim& dim : loop::dims_of(stmt))
        if (plan_.width.count(dim.var))
          plan_.accumulators[dim.var] = std::clamp(static_cast<int>(4 * variation_.vectors), 1, 8);
    });
  }

  // Several vectors side by side hide the latency of a reduction or a scan that runs across lanes, where each step waits for
  // the one before, or for memory. The scan's vectors lie in memory as they are: others are gathered, the more the longer.
  int wide(const loop::Dim& dim) const {
    bool reduces = false, scans = false, whole = true;
    int lets = 0;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      reduces = reduces || std::holds_alternative<loop::Reduce>(stmt.node);
      scans = scans || std::holds_alternative<loop::Scan>(stmt.node);
      if (const loop::Access* access = loop::access_of(stmt)) {
        const auto stride = loop::stride_of(program_, *access, dim.var, facts_);
        whole = whole && stride && (stride->is_const(0) || stride->is_const(1));
      }
      lets += std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Load>(stmt.node);
    });
    int width = lanes_;
    const bool waits = ((reduces || (scans && whole)) && lets <= 8) || loop::walks(nest_);
    while (waits && width < 64 && width < 4 * lanes_ && trips(dim.extent) >= 2 * width) width *= 2;
    return std::clamp(static_cast<int>(width * variation_.vectors), std::min(lanes_, 64), 64);
  }

  // ---- loops and tasks ----

  // Outer loops follow the output, so that it is written in order.
  void choose_order() {
    const loop::Access* out = nullptr;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      if (const auto* store = std::get_if<loop::Store>(&stmt.node);
          store && !out && program_[store->access.buffer].storage != loop::Storage::kLocal)
        out = &store->access;
    });
    order_ = nest_.dims;
    if (out) {
      std::vector<std::tuple<double, size_t>> keyed;  // by falling stride, equal ones as written
      for (const loop::Dim& dim : nest_.dims) {
        const std::optional<Expr> stride = loop::stride_of(program_, *out, dim.var, facts_);
        if (!stride || stride->is_const(0) || sym::has_index(dim.extent) || sym::has_index(*stride)) return;
        keyed.emplace_back(-std::fabs(typical(*stride, facts_)), keyed.size());
      }
      std::sort(keyed.begin(), keyed.end());
      for (size_t d = 0; d < order_.size(); ++d) order_[d] = nest_.dims[std::get<1>(keyed[d])];
    }
  }

  // Whether neighbours along `together_` load the same.
  bool is_shared(const loop::Stmt& stmt, const loop::Access& access) const {
    if (!together_ || !std::holds_alternative<loop::Load>(stmt.node)) return false;
    const auto depends = [&](Expr e) { return sym::depends_on(e, together_->first); };
    return !depends(access.mask) && std::none_of(access.index.begin(), access.index.end(), depends);
  }

  // A loop in which a vector is loaded that neighbouring points share: a few of these are done together. The partial results
  // of all of them stay in registers.
  void choose_points() {
    constexpr int kTogether = 4;
    constexpr double kGain = 0.8;  // of the time, at most
    if (variation_.points == 1 || !lane_dim_ || plan_.transpose || plan_.single) return;
    const loop::Dim *along = nullptr, *lane = nullptr;
    for (const loop::Dim& dim : order_) {
      if (sym::has_index(dim.extent)) return;
      (dim.var == *lane_dim_ ? lane : along) = &dim;
    }
    const int count = variation_.points ? variation_.points : kTogether;
    if (!along || trips(along->extent) < count || !can_do_together(program_, nest_, along->var)) return;
    if (!variation_.points && in_pieces(lane)) return;
    together_.emplace(along->var, count);
    int sums = 0;
    bool shared = false;
    loop::for_each_stmt(nest_.body, [&](const loop::Stmt& stmt) {
      const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
      if (!reduce) return;
      sums += static_cast<int>(reduce->results.size());
      for (const loop::Stmt& inner : reduce->body)
        if (const loop::Access* access = loop::access_of(inner); access && is_shared(inner, *access)) {
          const auto stride = loop::stride_of(program_, *access, lane->var, facts_);
          shared = shared || (stride && !stride->is_const(0));
        }
    });
    const double n = trips(lane->extent);
    const double with =
        (cost(nest_.body, &lane->var, lanes_) + kLoopOverhead) * std::ceil(n / lanes_) * points() / n;
    together_.reset();
    if (!shared || with > (variation_.points ? 1 : kGain) * cycles_) return;
    plan_.points.push_back({along->var, count});
    int& width = plan_.width[lane->var];
    const int registers = target_.avx512 ? 32 : 16;
    while (width > lanes_ && width / lanes_ * count * sums > registers / 2) width /= 2;
    point_cycles_ *= with / cycles_;
    cycles_ = with;
  }

  // Long rows, or rows that may be few: pieces of a row are tasks.
  bool in_pieces(const loop::Dim* lane) const {
    if (!lane) return false;
    double least_points = 1, task = point_cycles_ * trips(lane->extent);
    bool outer = false;
    for (const loop::Dim& dim : order_) {
      if (dim.var == lane->var || (plan_.transpose && dim.var == plan_.transpose->first)) continue;
      outer = true;
      least_points *= least_trips(dim.extent);
    }
    return !outer || (least_points < 16 && task > 8 * kTaskCycles);
  }

  void choose_tasks() {
    if (loop::effects_of(nest_).updates) return;  // in order
    std::vector<loop::Dim> outer;
    const loop::Dim* lane = nullptr;
    for (const loop::Dim& dim : order_) {
      if (sym::has_index(dim.extent)) return;  // one task
      if (lane_dim_ && dim.var == *lane_dim_)
        lane = &dim;
      else if (!plan_.transpose || dim.var != plan_.transpose->first)
        outer.push_back(dim);
      else
        point_cycles_ *= trips(dim.extent);  // a loop within the task
    }
    for (const loop::Dim& dim : outer) plan_.tasks.push_back(dim.var);
    const double task = point_cycles_ * (lane ? trips(lane->extent) : 1);
    if (plan_.points.empty() && in_pieces(lane)) {
      plan_.tasks.push_back(lane->var);
      const int width = plan_.width.at(lane->var);
      const double points = variation_.chunk * kTaskCycles / point_cycles_;
      plan_.chunk = std::max<int64_t>(1, static_cast<int64_t>(points / width)) * width;
    } else if (outer.size() > 1 &&
               task < variation_.chunk * kTaskCycles) {  // of one dim, neighbours are one range
      plan_.chunk =
          std::max<int64_t>(1, std::min<int64_t>(static_cast<int64_t>(variation_.chunk * kTaskCycles / task),
                                                 static_cast<int64_t>(trips(outer.back().extent))));
    }
    if (!plan_.points.empty() && outer.size() > 1) {
      const int64_t count = plan_.points[0].factor;
      plan_.chunk = (plan_.chunk + count - 1) / count * count;
    }
    const double cycles_of_step = cycles_ / trips(loop::cost_of(program_, nest_).steps);
    plan_.grain =
        std::max<int64_t>(1, static_cast<int64_t>(variation_.grain * kThreadCycles / cycles_of_step));
  }

  const loop::Program& program_;
  const loop::Nest& original_;
  const CpuTarget& target_;
  const Variation variation_;
  loop::Nest nest_;
  sym::Facts facts_;
  LoopPlan plan_;
  int lanes_ = 1;
  std::optional<Expr> lane_dim_;
  std::vector<loop::Dim> order_;
  double point_cycles_ = 1;
  double cycles_ = 0;                             // of the whole nest
  std::optional<std::pair<Expr, int>> together_;  // cost(): so many points along this dim at a time
  bool smallest_ = false;                         // trips() are those of the smallest sizes
};

// Whether dims are split, as the model has it.
Variation best_of(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  Chooser apart(program, nest, target);
  apart.choose();
  if (!apart.has_splits()) return {};
  Chooser whole(program, nest, target, {.split = false});
  whole.choose();
  return {.split = apart.cycles() <= whole.cycles()};
}

}  // namespace

LoopPlan general_plan(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  Chooser chooser(program, nest, target, best_of(program, nest, target));
  return chooser.choose();
}

std::vector<RankedLoopPlan> general_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  std::vector<RankedLoopPlan> space;
  std::vector<std::vector<loop::Directive>> known;
  auto add = [&](const Variation& variation) {
    Chooser chooser(program, nest, target, variation);
    LoopPlan plan = chooser.choose();
    std::vector<loop::Directive> text = directives(plan);
    if (std::find(known.begin(), known.end(), text) != known.end()) return;
    known.push_back(std::move(text));
    space.push_back({std::move(plan), chooser.cycles()});
  };
  using Lanes = Variation::Lanes;
  const Variation liked = best_of(program, nest, target);
  std::vector<Variation> lanes;
  for (bool split : {liked.split, !liked.split}) {
    Chooser best(program, nest, target, {.split = split});
    best.choose();
    lanes.push_back({.split = split});
    for (const Expr& dim : best.dims()) lanes.push_back({.lanes = Lanes::kDim, .dim = dim, .split = split});
    if (best.has_loops()) lanes.push_back({.lanes = Lanes::kInner, .split = split});
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
          directives(loop::blaming(nest, [&] { return general_plan(program, nest, target); }));
}

}  // namespace stridec::schedule
