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

}  // namespace

DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  const bool columns = plan.columns.has_value();
  // Ranges may be too long for the group that was chosen for a typical length. If the length is unknown,
  // there are groups for all lengths, and even data that is read once is loaded as a whole.
  std::vector<int> teams = {plan.team};
  bool unknown = false, too_long = columns;  // too long for the registers of the plan's group
  if (!columns) {
    const CooperativeEmitter probe(program, nest, target, {});
    const int64_t longest = probe.longest_bound();
    too_long = longest > int64_t{kKeptElements} * plan.team;
    if (!probe.has_common() && too_long)
      unknown = std::any_of(probe.nest.body.begin(), probe.nest.body.end(), [](const loop::Stmt& stmt) {
        return is_range(stmt) && !loop::extent_of(loop::dims_of(stmt)).is_const();
      });
    if (unknown) teams = {8, 32, 128, 512};
    for (const int team : {128, 512})
      if (!unknown && !probe.has_common() && team > teams.back() &&
          longest > int64_t{kKeptElements} * teams.back())
        teams.push_back(team);
  }
  bool vectors_serve = false;  // if the callers' tensors begin at multiples of 16 bytes
  // Adds a choice and returns whether it exists; `most`: only for ranges of at most this many chunks.
  auto add = [&](TeamVariant variant, std::optional<int64_t> most = std::nullopt) {
    if (out.is_complete() || (variant.vectors && !columns && vectors_serve)) return false;
    CooperativeEmitter probe(program, nest, target, variant);
    if (variant.vectors && !probe.any_vectors()) return false;
    if (variant.shifted && probe.has_common()) return false;
    // The longest range decides whether all fit.
    std::vector<sym::Expr> conditions;
    for (const loop::Stmt& stmt : probe.nest.body) {
      if (!is_range(stmt)) continue;
      const CooperativeEmitter::Range range = probe.range_of(stmt);
      if (variant.keep)
        conditions.push_back(sym::le(range.chunks, probe.kept_chunks() * probe.rows));
      else if (variant.narrow)
        conditions.push_back(sym::lt(range.chunks, kManyChunks));
      if (most) conditions.push_back(sym::le(range.chunks, *most));
    }
    probe.count_wanted();
    if (variant.shared) {
      if (probe.kept_bytes().is_const(0) || probe.has_locals() || probe.has_common()) return false;
      conditions.push_back(sym::le(probe.kept_bytes(), target.shared_bytes - kOtherShared));
      // Rows that stay in L2 are cheaper to read again from there.
      conditions.push_back(sym::gt(probe.all_kept_bytes(), target.l2_bytes / 2));
    }
    if (variant.keep && (!(probe.keeps_something() || unknown || variant.parts) || probe.has_common()))
      return false;
    if (variant.parts && !probe.passes_locals()) return false;
    // Single elements are kept only if the unrolled code stays small; vectors are worth more.
    if (variant.keep &&
        probe.kept_chunks() * statements(probe.nest.body) > (variant.vectors ? 4 : 2) * kUnrolled)
      return false;
    if (variant.split) {
      if (!probe.only_reduction() || probe.has_locals() || probe.has_common()) return false;
      conditions.push_back(sym::ge(probe.splits(), 2));
    }
    conditions.insert(conditions.end(), probe.conditions.begin(), probe.conditions.end());
    const sym::Expr condition = sym::simplify(sym::logical_and(conditions), program.facts);
    if (condition.is_const(0)) return false;
    vectors_serve = vectors_serve || (variant.vectors && condition.is_const(1));
    DeviceChoice choice{condition, probe.aligned, {}};
    CooperativeEmitter emitter(program, nest, target, variant);
    if (variant.split) {
      choice.launches.push_back(emitter.emit_split());
      CooperativeEmitter second(program, nest, target, variant);
      choice.launches.push_back(second.emit_combination(probe.splits(), choice.launches[0].workspace_bytes));
    } else {
      choice.launches.push_back(emitter.emit());
    }
    out.choices.push_back(std::move(choice));
    return true;
  };
  const auto add_walks = [&](bool vectors, bool shifted) {
    bool kept = false;
    for (const int team : teams) {
      if (shifted && unknown && team == teams.front()) continue;  // for short rows
      kept = add({.columns = columns, .keep = true, .vectors = vectors, .shifted = shifted, .team = team}) ||
             kept;
    }
    if (too_long)
      add({.columns = columns,
           .vectors = vectors,
           .shifted = shifted,
           .shared = true,
           .narrow = true,
           .team = columns ? 0 : teams.back()});
    // A group that suits the length pays even if registers do not hold a row.
    if (teams.size() > 1 && !kept)
      for (const int team : teams)
        if (unknown ? team != teams.back() && !(shifted && team == teams.front()) : team == plan.team)
          add({.vectors = vectors, .shifted = shifted, .narrow = true, .team = team}, kShortChunks * team);
    const bool walked = add(
        {.columns = columns, .vectors = vectors, .shifted = shifted, .narrow = true, .team = teams.back()});
    return kept || walked;
  };
  bool shifted = false;
  for (const bool vectors : {true, false}) {
    add({.columns = columns,
         .vectors = vectors,
         .split = true,
         .narrow = true,
         .team = columns ? 0 : kSplitTeam});
    if (columns && vectors)
      add({.columns = true, .vectors = true, .covered = true, .split = true, .narrow = true});
    if (!shifted) add_walks(vectors, false);
    if (!vectors || columns) continue;
    for (const int team : kPartTeams)
      add({.keep = true, .vectors = true, .shifted = true, .parts = true, .team = team});
    shifted = add_walks(true, true);
  }
  // For rows too short to consist mostly of vectors.
  if (shifted && unknown) add({.keep = true, .team = teams.front()});
  add({.columns = columns, .team = teams.back()});
  return out;
}

}  // namespace stridec::codegen::cuda
