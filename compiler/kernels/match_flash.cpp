#include "compiler/kernels/flash.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "compiler/base/check.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/kernels/flash_mask.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Let;
using loop::Load;
using loop::ScalarOp;
using loop::Stmt;
using loop::Store;
using loop::ValueId;
using sym::Expr;

// ---- row statements --------------------------------------------------------------------------------------

// Meaning of a value, or of the elements of a local row.
enum class Role {
  kOther,
  kScore,
  kMax,
  kShifted,
  kWeight,
  kSum,
  kInverse,
  kShare,
  kIsNan,
  kLogSum,
  kLogSumExp
};

class Rows {
 public:
  Rows(const loop::Program& program, Flash& flash)
      : program_(program), flash_(flash), nest_(flash.rows_nest()), definitions_(definitions_of(nest_.body)) {
    rows_[flash.score->access.buffer] = Role::kScore;
  }

  std::string reason = "its row statements are not a softmax";

  // Fills in the Flash; `shares` is the local buffer that the second link reads.
  bool match(loop::BufferId shares) {
    for (const Stmt& stmt : nest_.body)
      if (!statement(stmt)) return false;
    const auto found = rows_.find(shares);
    if (found == rows_.end() || found->second != Role::kShare) return false;
    flash_.guarded = bounded_ || guarded_.contains(shares);
    if (const auto fix = fixes_.find(shares); fix != fixes_.end()) {
      flash_.fixes = fix->second.first;
      flash_.fixed = fix->second.second;
      // The statements that compute them are at the top level, before any row statement.
      for (const Stmt& stmt : nest_.body) {
        if (loop::body_of(stmt)) continue;
        bool own = true;
        loop::for_each_result(stmt, [&](ValueId id) { own = own && role(id) == Role::kOther; });
        if (own) flash_.row_statements.push_back(&stmt);
      }
    }
    return true;
  }

 private:
  Role role(ValueId id) const {
    const auto found = roles_.find(id);
    return found == roles_.end() ? Role::kOther : found->second;
  }

  bool is_zero(ValueId id) const {
    const auto constant = constant_of(definitions_, id);
    return constant && constant->f == 0 && constant->i == 0;
  }

  // Whether the loop has one dim, over all keys.
  bool over_keys(const std::vector<loop::Dim>& dims) const {
    return dims.size() == 1 && dims[0].extent == flash_.keys.extent;
  }

  bool statement(const Stmt& stmt) {
    if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
      if (!over_keys(reduce->dims) || reduce->yields.size() != 1) return false;
      for (const Stmt& inner : reduce->body)
        if (!element(inner, reduce->dims[0].var)) return false;
      const Role yielded = role(reduce->yields[0]);
      const DType dtype = nest_.values[reduce->results[0].value].dtype;
      if (reduce->combine == loop::Combine::kMax && yielded == Role::kScore)
        roles_[reduce->results[0]] = Role::kMax;
      else if (reduce->combine == loop::Combine::kSum && yielded == Role::kWeight && dtype == DType::kF32)
        roles_[reduce->results[0]] = Role::kSum;
      else
        return false;
      return true;
    }
    if (const auto* loop = std::get_if<loop::For>(&stmt.node)) {
      if (!over_keys(loop->dims)) return false;
      for (const Stmt& inner : loop->body)
        if (!element(inner, loop->dims[0].var)) return false;
      return true;
    }
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      const Role what = role(store->value);
      const bool both = what == Role::kLogSumExp, maximum = both || what == Role::kMax,
                 log_sum = both || what == Role::kLogSum;
      if ((!maximum && !log_sum) || store->update) return false;
      flash_.statistics.push_back({store, maximum, log_sum});
      return true;
    }
    if (const auto* let = std::get_if<Let>(&stmt.node)) return scalar(*let);
    return !loop::body_of(stmt);
  }

  // A statement at the top level, on values of the row as a whole.
  bool scalar(const Let& let) {
    bool touches = false;
    for (ValueId arg : let.args) touches = touches || role(arg) != Role::kOther;
    if (!touches) return true;
    const bool inverts = let.op == ScalarOp::kRcp && role(let.args[0]) == Role::kSum;
    const auto one = let.op == ScalarOp::kDiv ? constant_of(definitions_, let.args[0]) : std::nullopt;
    if (inverts || (one && one->f == 1 && role(let.args[1]) == Role::kSum)) {
      roles_[let.result] = Role::kInverse;
      return true;
    }
    if (let.op == ScalarOp::kCast && nest_.values[let.result.value].dtype == DType::kF32) {
      roles_[let.result] = role(let.args[0]);  // a widened maximum
      return true;
    }
    // PyTorch's softmax of a row that sees no key is 0: the maximum is at least the lowest number, and the
    // sum at least the smallest. A row that sees one has a sum of at least 1.
    for (const size_t side : {0u, 1u}) {
      const auto least = let.op == ScalarOp::kMax ? constant_of(definitions_, let.args[side]) : std::nullopt;
      const Role other = role(let.args[1 - side]);
      if (!least) continue;
      if ((other == Role::kMax && least->f <= std::numeric_limits<float>::lowest()) ||
          (other == Role::kSum && least->f > 0 && least->f < 1)) {
        roles_[let.result] = other;
        bounded_ = bounded_ || other == Role::kSum;
        return true;
      }
    }
    if (let.op == ScalarOp::kLog && role(let.args[0]) == Role::kSum) {
      roles_[let.result] = Role::kLogSum;
      return true;
    }
    const auto adds = [&](size_t a) {
      return role(let.args[a]) == Role::kMax && role(let.args[1 - a]) == Role::kLogSum;
    };
    if (let.op == ScalarOp::kAdd && (adds(0) || adds(1))) {
      roles_[let.result] = Role::kLogSumExp;
      return true;
    }
    return false;
  }

  // A statement in a loop over keys.
  bool element(const Stmt& stmt, Expr at) {
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      const auto found = rows_.find(load->access.buffer);
      if (found == rows_.end()) return false;  // loads of other buffers do not match
      if (!is_row(load->access, at)) return false;
      roles_[load->result] = found->second;
      if (guarded_.contains(load->access.buffer)) guarded_values_.insert(load->result);
      if (const auto fix = fixes_.find(load->access.buffer); fix != fixes_.end())
        fixed_values_[load->result] = fix->second;
      return true;
    }
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      const Role what = role(store->value);
      const bool known = what == Role::kScore || what == Role::kWeight || what == Role::kShare;
      if (!known || !is_row(store->access, at) || store->update) return false;
      const loop::BufferId to = store->access.buffer;
      rows_[to] = what;
      guarded_.erase(to);
      fixes_.erase(to);
      if (guarded_values_.contains(store->value)) guarded_.insert(to);
      if (const auto fix = fixed_values_.find(store->value); fix != fixed_values_.end())
        fixes_[to] = fix->second;
      return true;
    }
    if (const auto* let = std::get_if<Let>(&stmt.node)) return element(*let);
    return std::holds_alternative<loop::Constant>(stmt.node);
  }

  bool is_row(const loop::Access& access, Expr at) const {
    return program_[access.buffer].storage == loop::Storage::kLocal && access.index.size() == 1 &&
           access.index[0] == at && access.mask.is_const(1);
  }

  bool element(const Let& let) {
    auto is = [&](size_t arg, Role what) { return role(let.args[arg]) == what; };
    const DType dtype = nest_.values[let.result.value].dtype;
    Role made = Role::kOther;
    switch (let.op) {
      case ScalarOp::kCast:
      case ScalarOp::kCastSat:
        // Scores may be cast to f32, and shares to the type that the second link multiplies.
        if ((is(0, Role::kScore) && dtype == DType::kF32) || is(0, Role::kShare)) {
          made = role(let.args[0]);
          if (guarded_values_.contains(let.args[0])) guarded_values_.insert(let.result);
          if (const auto fix = fixed_values_.find(let.args[0]); fix != fixed_values_.end())
            fixed_values_[let.result] = fix->second;
        }
        break;
      case ScalarOp::kSub:
        if (is(0, Role::kScore) && is(1, Role::kMax) && dtype == DType::kF32) made = Role::kShifted;
        break;
      case ScalarOp::kExp:
        if (is(0, Role::kShifted) && dtype == DType::kF32) made = Role::kWeight;
        break;
      case ScalarOp::kDiv:
        if (is(0, Role::kWeight) && is(1, Role::kSum)) made = Role::kShare;
        break;
      case ScalarOp::kMul:
        if ((is(0, Role::kWeight) && is(1, Role::kInverse)) ||
            (is(1, Role::kWeight) && is(0, Role::kInverse)))
          made = Role::kShare;
        break;
      case ScalarOp::kIsNan:
        if (is(0, Role::kShare)) made = Role::kIsNan;
        break;
      case ScalarOp::kSelect: made = selected(let); break;
      default: break;
    }
    if (made == Role::kOther) {
      for (ValueId arg : let.args)
        if (role(arg) != Role::kOther) return false;
      return true;
    }
    roles_[let.result] = made;
    return true;
  }

  Role selected(const Let& let) {
    if (role(let.args[2]) != Role::kShare || fixed_values_.contains(let.args[2])) return Role::kOther;
    if (role(let.args[0]) == Role::kIsNan && is_zero(let.args[1])) {
      guarded_values_.insert(let.result);
      return Role::kShare;
    }
    // A condition and a value of the row; both are defined outside loops.
    if (role(let.args[0]) != Role::kOther || role(let.args[1]) != Role::kOther) return Role::kOther;
    for (ValueId arg : {let.args[0], let.args[1]}) {
      bool top = false;
      for (const Stmt& stmt : nest_.body)
        loop::for_each_result(stmt, [&](ValueId id) { top = top || id == arg; });
      if (!top) return Role::kOther;
    }
    if (guarded_values_.contains(let.args[2])) guarded_values_.insert(let.result);
    fixed_values_[let.result] = {let.args[0], let.args[1]};
    return Role::kShare;
  }

  using Fix = std::pair<ValueId, ValueId>;
  const loop::Program& program_;
  Flash& flash_;
  const loop::Nest& nest_;
  const Definitions definitions_;
  std::map<ValueId, Role> roles_;
  std::map<loop::BufferId, Role> rows_;
  std::set<loop::BufferId> guarded_;
  bool bounded_ = false;  // the sum of weights is never 0
  std::map<loop::BufferId, Fix> fixes_;
  std::set<ValueId> guarded_values_;
  std::map<ValueId, Fix> fixed_values_;
};

// ---- factors ---------------------------------------------------------------------------------------------

std::optional<Flash::Operand> operand(const loop::Program& program, const Factor& factor, Expr line,
                                      Expr depth, const sym::Facts& facts, bool scatters = false) {
  const Load* load = plain_load(factor);
  if (!load) return std::nullopt;
  if (auto found = flash_operand(program, *load, line, depth, facts)) return found;
  const auto only = sym::linear_in(offset_of(program, load->access, facts), depth);
  if (!scatters || !only || !only->coefficient.is_const(1)) return std::nullopt;
  return Flash::Operand{.load = load, .base = only->rest, .line = 0, .scattered = true};
}

// The common type of both factors.
std::optional<DType> factor_dtype(const loop::Nest& nest, const Contraction& contraction) {
  const DType a = element_of(nest, contraction, contraction.factors[0]),
              b = element_of(nest, contraction, contraction.factors[1]);
  const bool known = a == DType::kF16 || a == DType::kBF16 || a == DType::kTF32 || a == DType::kF32;
  return a == b && known && contraction.dtype == DType::kF32 ? std::optional(a) : std::nullopt;
}

int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  STRIDEC_CHECK(error == std::errc() && end == text.data() + text.size(), text);
  return value;
}

}  // namespace

std::optional<Flash> match_attention(const loop::Program& program, const loop::Nest& nest, bool assumes,
                                     std::string* reason) {
  auto refuse = [&](std::string why) -> std::optional<Flash> {
    if (reason) *reason = std::move(why);
    return std::nullopt;
  };
  auto chain = match_chain(nest, reason, true);
  if (!chain) return std::nullopt;
  if (chain->parts.size() != 3 || !chain->parts[0].link || chain->parts[1].link || !chain->parts[2].link)
    return refuse("it is not a contraction, rows and a contraction");
  Flash flash;
  flash.chain = *std::move(chain);
  const Chain::Part &first = flash.chain.parts[0], &last = flash.chain.parts[2];
  if (first.link->columns.size() != 1 || last.link->columns.size() != 1 ||
      flash.scores().reduce->dims.size() != 1 || flash.values().reduce->dims.size() != 1)
    return refuse("its columns or sums are not of one dim");
  flash.keys = first.link->columns[0];
  flash.columns = last.link->columns[0];
  const loop::Dim& summed = flash.values().reduce->dims[0];
  if (summed.extent != flash.keys.extent) return refuse("it sums over other keys than it has scores for");
  const Load* shares = plain_load(last.link->row_factor());
  if (!shares || shares->access.index != std::vector<Expr>{summed.var})
    return refuse("the second contraction reads more than a row");

  for (const Stmt& stmt : first.nest.body) {
    const auto* store = std::get_if<Store>(&stmt.node);
    if (!store) continue;
    if (flash.score || program[store->access.buffer].storage != loop::Storage::kLocal ||
        store->access.index != std::vector<Expr>{flash.keys.var} || !store->access.mask.is_const(1))
      return refuse("the first contraction stores more than a row of scores");
    flash.score = store;
  }
  if (!flash.score || !is_float(first.nest.values[flash.score->value.value].dtype))
    return refuse("the first contraction stores no scores");
  for (const Stmt& stmt : first.nest.body)
    if (const auto* load = std::get_if<Load>(&stmt.node))
      for (Expr index : load->access.index)
        flash.biased = flash.biased || sym::depends_on(index, flash.keys.var);
  Rows rows(program, flash);
  if (!rows.match(shares->access.buffer)) return refuse(rows.reason);
  find_mask(program, flash, assumes);
  return flash;
}

std::optional<Flash> match_flash(const loop::Program& program, const loop::Nest& nest, std::string* reason,
                                 bool assumes) {
  auto refuse = [&](std::string why) -> std::optional<Flash> {
    if (reason) *reason = std::move(why);
    return std::nullopt;
  };
  auto matched = match_attention(program, nest, assumes, reason);
  if (!matched) return std::nullopt;
  Flash& flash = *matched;
  const Chain::Part &first = flash.chain.parts[0], &last = flash.chain.parts[2];
  const loop::Dim &deep = flash.scores().reduce->dims[0], &summed = flash.values().reduce->dims[0];
  const auto depth = sym::as_const(deep.extent), width = sym::as_const(flash.columns.extent);
  if (!depth || !width || *depth < 1 || *width < 1 || *depth > kMostDepth || *width > kMostDepth)
    return refuse("its head size is not fixed, or over 256");
  flash.depth = *depth;
  flash.width = *width;

  const auto dtype = factor_dtype(first.nest, flash.scores());
  if (!dtype || factor_dtype(last.nest, flash.values()) != dtype)
    return refuse("its factors are not 16-bit floats, tf32 or f32 of one kind");
  flash.dtype = *dtype;
  const sym::Facts early = facts_in(program, first.nest, flash.scores()),
                   late = facts_in(program, last.nest, flash.values());
  const auto q = operand(program, first.link->row_factor(), flash.chain.row.var, deep.var, early, true),
             k = operand(program, first.link->column_factor(), flash.keys.var, deep.var, early),
             v = operand(program, last.link->column_factor(), summed.var, flash.columns.var, late);
  if (!q || !k || !v) return refuse("a factor is computed, or not contiguous along the head");
  for (const Flash::Operand* factor : {&*q, &*k, &*v})
    if (program[factor->load->access.buffer].dtype != flash.dtype)
      return refuse("a factor is stored as another type than it is multiplied as");
  flash.q = *q;
  flash.k = *k;
  flash.v = *v;
  return matched;
}

bool is_flash(const loop::Schedule& schedule) {
  return schedule.kernel == "flash.mma" || schedule.kernel == "flash.wgmma";
}

loop::Schedule to_schedule(const FlashPlan& plan) {
  loop::Schedule schedule{.kernel = plan.wgmma ? "flash.wgmma" : "flash.mma",
                          .directives = {{"tile", {std::to_string(plan.rows), std::to_string(plan.keys)}}}};
  if (plan.split) schedule.directives.push_back({"split", {std::to_string(plan.split)}});
  if (plan.spread)
    schedule.directives.push_back(
        {"spread", {std::to_string(plan.spread), std::to_string(plan.warps), std::to_string(plan.stages)}});
  return schedule;
}

FlashPlan to_flash_plan(const loop::Schedule& schedule) {
  FlashPlan plan{.wgmma = schedule.kernel == "flash.wgmma"};
  STRIDEC_CHECK(plan.wgmma || schedule.kernel == "flash.mma", schedule.kernel);
  for (const loop::Directive& directive : schedule.directives) {
    if (directive.name == "split" && directive.args.size() == 1) {
      plan.split = number(directive.args[0]);
      continue;
    }
    if (directive.name == "spread" && directive.args.size() == 3) {
      plan.spread = number(directive.args[0]);
      plan.warps = number(directive.args[1]);
      plan.stages = number(directive.args[2]);
      continue;
    }
    STRIDEC_CHECK(directive.name == "tile" && directive.args.size() == 2, directive.name);
    plan.rows = number(directive.args[0]);
    plan.keys = number(directive.args[1]);
  }
  return plan;
}

// Queries, and stages of keys and values. For wgmma: slabs with TMA's swizzle, and as many stages as fit.
int64_t shared_bytes(const FlashPlan& plan, const Flash& flash) {
  if (plan.wgmma)
    return int64_t{query_slots(plan, flash)} * plan.rows * 128 * slabs(flash.depth) +
           int64_t{stages(plan, flash)} * plan.keys * 128 * (slabs(flash.depth) + slabs(flash.width));
  return plan.parts() > 1 ? plan.warps * warp_bytes(plan, flash) : warp_bytes(plan, flash);
}

int64_t warp_bytes(const FlashPlan& plan, const Flash& flash) {
  const int64_t deep = padded(flash.depth) * flash.bytes(), wide = padded(flash.width) * flash.bytes();
  const int64_t warp = plan.rows * deep + plan.stages * plan.keys * (deep + wide);
  // At the end it holds the results of the warp and of its block: 16 bytes per thread, for every 8 columns
  // and once more.
  return plan.parts() > 1 ? std::max(warp, 2 * (padded(flash.width) / 8 + 1) * 512) : warp;
}

// A row holds the sums of its values, the maximum of its scores and the sum of its weights.
int part_bytes(const Flash& flash) { return kSplitRows * (static_cast<int>(padded(flash.width)) + 4) * 4; }

namespace {

int64_t stages_beside(const FlashPlan& plan, const Flash& flash, int64_t queries) {
  constexpr int64_t kShared = 224 << 10;
  const int64_t room = kShared - queries * plan.rows * 128 * slabs(flash.depth),
                stage = plan.keys * 128 * (slabs(flash.depth) + slabs(flash.width));
  return std::min<int64_t>(512 / plan.keys, room / stage);
}

}  // namespace

int query_slots(const FlashPlan& plan, const Flash& flash) {
  return stages_beside(plan, flash, 2) >= 2 ? 2 : 1;
}

int stages(const FlashPlan& plan, const Flash& flash) {
  return static_cast<int>(stages_beside(plan, flash, query_slots(plan, flash)));
}

std::span<const FlashPlan> mma_tiles(const Flash& flash) {
  static constexpr FlashPlan kTiles[] = {{.rows = 128, .keys = 64},
                                         {.rows = 64, .keys = 64},
                                         {.rows = 64, .keys = 32},
                                         {.rows = 64, .keys = 16}};
  static constexpr FlashPlan kWordTiles[] = {
      {.rows = 128, .keys = 32}, {.rows = 64, .keys = 32}, {.rows = 64, .keys = 16}};
  return flash.bytes() == 2 ? std::span<const FlashPlan>(kTiles) : kWordTiles;
}

std::optional<FlashPlan> mma_plan(const Flash& flash, int64_t shared, int most_rows) {
  for (const FlashPlan& plan : mma_tiles(flash))
    if (plan.rows <= most_rows && shared_bytes(plan, flash) <= shared) return plan;
  return std::nullopt;
}

std::optional<FlashPlan> split_plan(const Flash& flash, int64_t shared, int split, double keys) {
  if (!flash.statistics.empty()) return std::nullopt;
  for (int step : {64, 32, 16}) {
    const FlashPlan plan{.rows = kSplitRows, .keys = step, .split = split};
    const bool lasts = step == 16 || 2 * step * plan.parts() <= keys;
    if (lasts && shared_bytes(plan, flash) <= shared) return plan;
  }
  return std::nullopt;
}

namespace {

sym::Expr batches(const Flash& flash) {
  sym::Expr out = 1;
  for (const loop::Dim& dim : flash.chain.batch) out *= dim.extent;
  return out;
}

}  // namespace

std::optional<FlashPlan> spread_plan(const Flash& flash, int64_t shared) {
  if (!flash.statistics.empty()) return std::nullopt;
  for (int warps : {kSplitWarps, kSplitWarps / 2})
    for (int step : {64, 32, 16}) {
      const FlashPlan plan{.rows = kSplitRows, .keys = step, .spread = 1, .warps = warps};
      if (shared_bytes(plan, flash) <= shared) return plan;
    }
  return std::nullopt;
}

sym::Expr worth_spreading(const FlashPlan& plan, const Flash& flash, const GpuTarget& target) {
  // Per block, since its partial result of a tile makes a round trip through memory.
  constexpr int kSteps = 8;
  const sym::Expr steps = sym::ceildiv(flash.keys.extent, plan.parts() * plan.keys);
  return sym::logical_and(sym::ge(steps, kSteps), sym::ge(batches(flash) * steps, target.multiprocessors));
}

bool fits_warp_groups(const FlashPlan& plan, const Flash& flash) {
  // With 32-bit elements wgmma cannot read values that are contiguous along the head.
  if (flash.bytes() != 2) return false;
  const int64_t widest = std::max(flash.depth, flash.width);
  const bool registers = plan.rows > 128 ? widest <= 64 && flash.scale : plan.keys <= 64 || widest <= 128;
  return registers && stages(plan, flash) >= 2;
}

std::vector<FlashChoice> wgmma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target) {
  // Time of a tile's pass over the same keys, measured on an H200. Three groups interfere less with each
  // other than two; a single group cannot overlap with others. Tiles of four groups skip what an index mask
  // hides, which pays if there are few rows. Longer steps pay if there are many keys and no tile ends among
  // them.
  struct Tile {
    int rows, keys;
    int64_t cost;
  };
  constexpr Tile kNarrow[] = {{256, 64, 232}, {192, 128, 192}, {128, 128, 144}, {64, 128, 98}};
  constexpr Tile kWide[] = {{128, 176, 122}, {128, 128, 128}, {64, 128, 87}};
  constexpr int64_t kFewRows = 1024, kManyKeys = 4096;
  const bool narrow = std::max(flash.depth, flash.width) <= 64;
  const sym::Expr rows = flash.chain.row.extent;
  std::vector<FlashChoice> out;
  std::vector<sym::Expr> costs;
  for (const Tile& tile : narrow ? std::span<const Tile>(kNarrow) : kWide) {
    const FlashPlan other{.wgmma = true, .rows = tile.rows, .keys = tile.keys};
    const bool passes = tile.rows == 256, longer = tile.keys > 128;
    if (passes   ? plan.rows != 192 || !flash.triangular()
        : longer ? plan.rows != 128 || plan.keys != 128 || flash.skips || !flash.scale
                 : tile.rows > plan.rows || tile.keys != plan.keys)
      continue;
    if (!fits_warp_groups(other, flash)) continue;
    // If later rows see more keys, two tiles take on average the time of one, unless every tile has its own
    // block.
    const sym::Expr tiles = batches(flash) * sym::ceildiv(rows, tile.rows);
    const int64_t blocks = target.multiprocessors;
    const sym::Expr waves = flash.triangular()
                                ? sym::select(sym::le(tiles, blocks), 1, sym::ceildiv(tiles, 2 * blocks))
                                : sym::ceildiv(tiles, blocks);
    out.push_back({other, passes   ? sym::le(rows, kFewRows)
                          : longer ? sym::ge(flash.keys.extent, kManyKeys)
                                   : 1});
    costs.push_back(waves * tile.cost);
  }
  if (out.empty()) return {{plan, 1}};
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t j = i + 1; j < out.size(); ++j)
      out[i].condition = sym::logical_and(out[i].condition, sym::le(costs[i], costs[j]));
  return out;
}

std::vector<FlashChoice> mma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target,
                                     const sym::Facts& facts) {
  const sym::Expr rows = flash.chain.row.extent, keys = flash.keys.extent, points = batches(flash);
  std::vector<FlashChoice> out;
  if (plan.parts() == 1) {
    const auto spread = spread_plan(flash, target.shared_bytes);
    if (spread && !rows.is_const() && facts.bounds(rows).lo <= kSplitRows)
      out.push_back(
          {*spread, sym::logical_and(sym::le(rows, kSplitRows), worth_spreading(*spread, flash, target))});
    out.push_back({plan.wgmma ? *mma_plan(flash, target.shared_bytes) : plan, 1});
    return out;
  }
  const auto tile = mma_plan(flash, target.shared_bytes, 64);
  if (!tile || (points.is_const() && keys.is_const())) return {{plan, 1}};
  if (plan.spread) out.push_back({plan, worth_spreading(plan, flash, target)});
  std::optional<FlashPlan> fewer = plan;
  if (plan.spread) {
    const double most = static_cast<double>(plan.parts()) * plan.keys * 8;
    fewer = target.clusters ? split_plan(flash, target.shared_bytes, kMostSplit, most) : std::nullopt;
  }
  if (fewer) {
    for (; fewer->split > 2; fewer->split /= 4)  // halving instead would leave multiprocessors idle
      out.push_back({*fewer, sym::logical_and(sym::le(2 * points, target.multiprocessors),
                                              sym::ge(keys, fewer->split * kSplitKeys))});
    fewer->split = std::max(fewer->split, 1);
    out.push_back({*fewer, sym::ge(keys, 2 * kSplitKeys)});
  }
  out.push_back({*tile, 1});
  return out;
}

}  // namespace stridec::kernels
