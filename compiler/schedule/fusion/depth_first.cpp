#include "compiler/schedule/fusion/depth_first.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/schedule/fusion/depth_first_chain.h"
#include "compiler/schedule/fusion/depth_first_traffic.h"
#include "compiler/schedule/fusion/reduce_peak.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/memory/liveness.h"

namespace stridec::schedule {
namespace {

constexpr int64_t kWidestWindow = 64;

// Why the longest prefix of these launches, each the only reader of the previous one, is not fused
// depth-first.
std::string reason_of(const loop::Program& program, const std::vector<int>& all) {
  const std::vector<int> longest(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kLongestChain)));
  const std::string why = slower(program, longest), other = why_peak_stays(program, longest);
  return why == other ? why : cat(why, "; ", other);
}

// Records the reasons for the remaining chains that contain convolutions.
void explain_chains(const loop::Program& program, std::vector<Decision>& decisions) {
  const Flow flow(program, program.steps);
  const std::vector<StepGroup> later = future_tiled_groups(program);
  const RowChains chains(program, flow);
  const auto nest = [&](int at) { return nest_at(program, program.steps, at); };
  for (int first = 0; first < static_cast<int>(program.steps.size()); ++first) {
    if (chains.reader_of(first) < 0 || !chains.makers_of(first).empty()) continue;
    std::vector<int> all = {first};
    bool products = is_contraction(*nest(first)), windows = false;
    for (int next = chains.reader_of(first); next >= 0; next = chains.reader_of(next)) {
      for (const auto& rows : accesses_along(program, *nest(next), *chains.passes_on(all.back()), false))
        windows = windows || (rows && rows->high > rows->low && rows->high - rows->low < kWidestWindow);
      products = products || is_contraction(*nest(next));
      all.push_back(next);
    }
    const bool in_others = std::any_of(later.begin(), later.end(), [&](const StepGroup& group) {
      return std::includes(group.at.begin(), group.at.end(), all.begin(), all.end());
    });
    if (products && windows && !in_others)
      decisions.push_back(decision_about(program, *nest(all.front()), *nest(all.back()), false,
                                         cat("not fused by rows: ", reason_of(program, all))));
  }
}

}  // namespace

void fuse_depth_first(loop::Program& program, std::vector<Decision>* decisions) {
  if (std::none_of(program.nests.begin(), program.nests.end(), is_contraction)) return;
  reduce_peak(program, decisions);
  lower_traffic(program, decisions);
  if (decisions) explain_chains(program, *decisions);
}

}  // namespace stridec::schedule
