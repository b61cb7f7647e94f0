// Emits kernels with one thread group per point, or per several neighbouring points.
//
// Every thread of the group executes the top-level statements of the body, except stores, which the first
// thread executes. Top-level reductions and for loops are split over the group. Rows: the loop's dims are one
// range, divided into chunks of neighbouring elements, and thread t of T executes chunks t, t + T, ...
// Columns (the schedule's `columns %j`): a group computes neighbouring points along %j with a grid of
// threads, `lanes` along %j times `rows` along the range. A chunk is then one element of the range for each
// of a lane's points. The partial results of a reduction are combined in a fixed tree, so results do not
// depend on timing.
//
// If several of these loops load the same elements (a row that is summed and then scaled), they are loaded
// once: the same thread executes the same chunks of equal ranges, so its part stays in registers. So do local
// buffers that one loop writes and another reads in this way. This requires ranges of few chunks per thread.
// For longer ranges shared memory keeps what is loaded, unless all rows fit L2 (cooperative_shared.cpp). What
// does not fit there either is loaded again.
//
// Rows of odd widths begin at any address. Long ones use the aligned vectors within them and single elements
// at their ends. Short ones, several per warp, use all vectors that they overlap; of the first and the last
// vector only the row's own elements have an effect.
//
// A local buffer of rows that one loop writes and reads in each iteration, without an index that
// distinguishes the iterations, is private to the thread. The iterations are split over the threads and run
// concurrently.
//
// A long reduction of few points takes two launches: blocks split the range and store their results in the
// workspace; then one thread per point combines them and continues with the body.
#include <algorithm>

#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kSplitTeam = 512;            // group size if blocks split a row
constexpr int kPartTeams[] = {4, 8};       // group sizes for rows that a few vectors cover
constexpr int64_t kShortChunks = 64;       // chunks per thread above which a larger group pays
constexpr int64_t kOtherShared = 2 << 10;  // bytes besides kept rows, for combining results of warps

// Collects the kernels of a nest, best first.
class Selection {
 public:
  Selection(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target)
      : program_(program),
        nest_(nest),
        target_(target),
        plan_(schedule::parse_plan(nest.schedule)),
        columns_(plan_.columns.has_value()),
        teams_{plan_.team},
        too_long_(columns_) {
    if (!columns_) choose_teams();
  }

  DeviceNest make() {
    bool shifted = false;
    for (const bool vectors : {true, false}) {
      add({.columns = columns_,
           .vectors = vectors,
           .split = true,
           .narrow = true,
           .team = columns_ ? 0 : kSplitTeam});
      if (columns_ && vectors)
        add({.columns = true, .vectors = true, .covered = true, .split = true, .narrow = true});
      if (!shifted) add_walks(vectors, false);
      if (!vectors || columns_) continue;
      for (const int team : kPartTeams)
        add({.keep = true, .vectors = true, .shifted = true, .parts = true, .team = team});
      shifted = add_walks(true, true);
    }
    // For rows too short to consist mostly of vectors.
    if (shifted && unknown_) add({.keep = true, .team = teams_.front()});
    add({.columns = columns_, .team = teams_.back()});
    return std::move(out_);
  }

 private:
  // Ranges may be too long for the group that was chosen for a typical length. If the length is unknown,
  // there are groups for all lengths, and even data that is read once is loaded as a whole.
  void choose_teams() {
    const CooperativeEmitter probe(program_, nest_, target_, {});
    const int64_t longest = probe.longest_bound();
    too_long_ = longest > int64_t{kKeptElements} * plan_.team;
    if (probe.has_common()) return;
    if (too_long_)
      unknown_ = std::any_of(probe.nest.body.begin(), probe.nest.body.end(), [](const loop::Stmt& stmt) {
        return is_range(stmt) && !loop::extent_of(loop::dims_of(stmt)).is_const();
      });
    if (unknown_) {
      teams_ = {8, 32, 128, 512};
      return;
    }
    for (const int team : {128, 512})
      if (team > teams_.back() && longest > int64_t{kKeptElements} * teams_.back()) teams_.push_back(team);
  }

  // Adds the kernels that iterate over whole ranges. Returns whether there are any.
  bool add_walks(bool vectors, bool shifted) {
    bool kept = false;
    for (const int team : teams_) {
      if (shifted && unknown_ && team == teams_.front()) continue;  // for short rows
      kept = add({.columns = columns_, .keep = true, .vectors = vectors, .shifted = shifted, .team = team}) ||
             kept;
    }
    if (too_long_)
      add({.columns = columns_,
           .vectors = vectors,
           .shifted = shifted,
           .shared = true,
           .narrow = true,
           .team = columns_ ? 0 : teams_.back()});
    // A group that suits the length pays even if registers do not hold a row.
    if (teams_.size() > 1 && !kept)
      for (const int team : teams_)
        if (unknown_ ? team != teams_.back() && !(shifted && team == teams_.front()) : team == plan_.team)
          add({.vectors = vectors, .shifted = shifted, .narrow = true, .team = team}, kShortChunks * team);
    const bool walked = add(
        {.columns = columns_, .vectors = vectors, .shifted = shifted, .narrow = true, .team = teams_.back()});
    return kept || walked;
  }

  // Adds a choice and returns whether it exists; `most`: only for ranges of at most this many chunks.
  bool add(TeamVariant variant, std::optional<int64_t> most = std::nullopt) {
    if (out_.is_complete() || (variant.vectors && !columns_ && vectors_serve_)) return false;
    CooperativeEmitter probe(program_, nest_, target_, variant);
    if (variant.vectors && !probe.any_vectors()) return false;
    if (variant.shifted && probe.has_common()) return false;
    std::vector<sym::Expr> conditions = range_conditions(probe, most);
    probe.count_wanted();
    if (!allows_variant(probe) || !pays(probe)) return false;
    if (variant.shared) {
      conditions.push_back(sym::le(probe.kept_bytes(), target_.shared_bytes - kOtherShared));
      // Rows that stay in L2 are cheaper to read again from there.
      conditions.push_back(sym::gt(probe.all_kept_bytes(), target_.l2_bytes / 2));
    }
    if (variant.split) conditions.push_back(sym::ge(probe.splits(), 2));
    conditions.insert(conditions.end(), probe.conditions.begin(), probe.conditions.end());
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program_.facts);
    if (condition.is_const(0)) return false;
    vectors_serve_ = vectors_serve_ || (variant.vectors && condition.is_const(1));
    out_.choices.push_back({condition, probe.aligned, launches(probe)});
    return true;
  }

  // The conditions on the ranges' lengths. The longest range decides whether all fit.
  static std::vector<sym::Expr> range_conditions(CooperativeEmitter& probe, std::optional<int64_t> most) {
    std::vector<sym::Expr> out;
    for (const loop::Stmt& stmt : probe.nest.body) {
      if (!is_range(stmt)) continue;
      const CooperativeEmitter::Range range = probe.range_of(stmt);
      if (probe.variant.keep)
        out.push_back(sym::le(range.chunks, probe.kept_chunks() * probe.rows));
      else if (probe.variant.narrow)
        out.push_back(sym::lt(range.chunks, kManyChunks));
      if (most) out.push_back(sym::le(range.chunks, *most));
    }
    return out;
  }

  // Whether the nest has the form that the variant requires.
  static bool allows_variant(const CooperativeEmitter& probe) {
    const TeamVariant& variant = probe.variant;
    if (variant.parts && !probe.passes_locals()) return false;
    if (variant.keep && probe.has_common()) return false;
    if (variant.split && !probe.only_reduction()) return false;
    return !(variant.shared || variant.split) || !(probe.has_locals() || probe.has_common());
  }

  // Whether the variant has something to keep, in code that stays small.
  bool pays(const CooperativeEmitter& probe) const {
    const TeamVariant& variant = probe.variant;
    if (variant.shared && probe.kept_bytes().is_const(0)) return false;
    if (!variant.keep) return true;
    if (!probe.keeps_something() && !unknown_ && !variant.parts) return false;
    // Single elements are kept only if the unrolled code stays small; vectors are worth more.
    return probe.kept_chunks() * statements(probe.nest.body) <= (variant.vectors ? 4 : 2) * kUnrolled;
  }

  std::vector<DeviceKernel> launches(CooperativeEmitter& probe) const {
    std::vector<DeviceKernel> out;
    CooperativeEmitter emitter(program_, nest_, target_, probe.variant);
    if (!probe.variant.split) {
      out.push_back(emitter.emit());
      return out;
    }
    out.push_back(emitter.emit_split());
    CooperativeEmitter second(program_, nest_, target_, probe.variant);
    out.push_back(second.emit_combination(probe.splits(), out[0].workspace_bytes));
    return out;
  }

  const loop::Program& program_;
  const loop::Nest& nest_;
  const GpuTarget& target_;
  const schedule::LoopPlan plan_;
  const bool columns_;
  std::vector<int> teams_;      // group sizes, for increasing lengths
  bool unknown_ = false;        // the length of a range is unknown, and may be too long
  bool too_long_;               // for the registers of the plan's group
  bool vectors_serve_ = false;  // if the callers' tensors begin at multiples of 16 bytes
  DeviceNest out_;
};

}  // namespace

DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  return Selection(program, nest, target).make();
}

}  // namespace stridec::codegen::cuda
