// A team of threads per point, or per several neighbouring points.
//
// Statements at the top of the body are done by every thread of the team alike; stores there by its first. A reduce or
// for at the top is dealt out. Rows: its dims are one range, cut into chunks of neighbours, and thread t of T does chunks
// t, t + T, ... Columns (the schedule's `columns %j`): a team does neighbouring points along %j, its threads are a grid of
// `lanes` along them times `rows` along the range, and a chunk is one element of the range for each of a lane's points.
// The threads' partial results of a reduce meet in a fixed tree, so results do not depend on timing.
//
// What is loaded at the same place by several of these loops (a row that is summed and then scaled) is loaded once: the
// same thread does the same chunks of equal ranges, so that its part stays in its registers, and so do local buffers
// that loops pass on in this way. That takes ranges of a few chunks a thread; of longer ones shared memory keeps what is
// loaded, unless L2 has room for all rows (cooperative_shared.cpp); what does not fit there either is read again.
//
// Rows of odd widths begin anywhere. Long ones go by the vectors that lie within them, and what is left at their ends by single
// elements; short ones, several a warp, by all the vectors that they have a part in, and of the first and the last one
// nothing comes but the row's own elements.
//
// A local buffer of rows that one of these loops makes and uses in each of its rounds, without an index that tells the
// rounds apart, is the thread's own: rounds are dealt out, and run at once.
//
// A long reduction of few points is done in two launches: blocks that share the range leave their results in the workspace,
// and a thread per point combines them and goes on.
#include <algorithm>

#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kSplitTeam = 512;            // of blocks that share a row
constexpr int kPartTeams[] = {4, 8};       // of rows that a few vectors cover
constexpr int64_t kShortChunks = 64;       // of a thread, before a larger team pays
constexpr int64_t kOtherShared = 2 << 10;  // bytes, beside rows that are kept: what results of warps meet in

}  // namespace

DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const schedule::LoopPlan plan = schedule::parse_plan(nest.schedule);
  const bool columns = plan.columns.has_value();
  // Ranges may be too long for the team that was chosen for a typical length. Where the length is not known there are teams
  // for all lengths, and even what is read once is read as a whole.
  std::vector<int> teams = {plan.team};
  bool unknown = false, too_long = columns;  // for registers of the plan's team
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
  bool vectors_serve = false;  // wherever the callers' tensors begin at multiples of 16 bytes
  // Whether there is such a choice; `most`: for ranges of so many chunks alone.
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
      // Rows that stay in L2 are read again from there at less cost.
      conditions.push_back(sym::gt(probe.all_kept_bytes(), target.l2_bytes / 2));
    }
    if (variant.keep && (!(probe.keeps_something() || unknown || variant.parts) || probe.has_common()))
      return false;
    if (variant.parts && !probe.passes_locals()) return false;
    // Single elements are kept where their copies stay few; vectors are worth more.
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
    // A team that suits the length is worth having, whether or not registers hold a row.
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
  // Rows shorter than those of which most goes by vectors.
  if (shifted && unknown) add({.keep = true, .team = teams.front()});
  add({.columns = columns, .team = teams.back()});
  return out;
}

}  // namespace stridec::codegen::cuda
