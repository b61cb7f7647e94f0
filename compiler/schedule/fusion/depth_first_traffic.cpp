#include "compiler/schedule/fusion/depth_first_traffic.h"

#include <algorithm>

#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/fusion/depth_first_chain.h"
#include "compiler/schedule/fusion/depth_first_cost.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/memory/liveness.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Launch;
using loop::Program;
using sym::Expr;

constexpr int64_t kCache = 512 << 10;  // of a thread, for the intermediates
constexpr double kLeastGain = 0.02;    // share of the chain's time, as a margin for the model's error

// Evaluates chains of an unmodified program.
class ChainFinder {
 public:
  explicit ChainFinder(const Program& program)
      : program_(program),
        flow_(program, program.steps),
        later_(future_tiled_groups(program)),
        chains_(program_, flow_) {}

  const RowChains& chains() const { return chains_; }

  struct Found {
    RowChain chain;
    double gain;  // cycles
  };
  std::optional<Found> find(const std::vector<int>& at, std::string& why) const {
    const auto fits = [&](RowChain& chain, std::string& reason) {
      return choose_length(program_, chain, kCache, reason);
    };
    auto chain = chains_.chain_of(at, fits, why);
    if (!chain) return std::nullopt;
    const TileCost cost = cost_of_tiles(program_, flow_, *chain);
    chain->finest = finest_length(program_, *chain, cost);
    double traffic = cost.traffic;
    // Traffic that tile_and_fuse() would save anyway does not count.
    for (const StepGroup& group : later_) {
      const bool meets = std::any_of(group.at.begin(), group.at.end(), [&](int step) {
        return std::find(at.begin(), at.end(), step) != at.end();
      });
      for (BufferId id : group.own) traffic -= meets ? traffic_of(program_, *chain, id) : 0;
    }
    why = "the intermediates stay in caches anyway";
    if (traffic <= 0) return std::nullopt;
    why =
        "weights read again for each tile, and rows computed twice at tile borders, would take as long as "
        "the memory traffic";
    const double gain = traffic - cost.overhead;
    if (gain < kLeastGain * (cost.work + cost.traffic)) return std::nullopt;
    return Found{*std::move(chain), gain};
  }

 private:
  const Program& program_;
  const Flow flow_;
  const std::vector<StepGroup> later_;
  const RowChains chains_;
};

// The positions of the nests' launches among the top-level steps; shorter than `nests` if some are elsewhere.
std::vector<int> positions(const Program& program, const std::vector<loop::NestId>& nests) {
  std::vector<int> at;
  for (loop::NestId id : nests)
    for (size_t p = 0; p < program.steps.size(); ++p)
      if (const auto* launch = std::get_if<Launch>(&program.steps[p].node); launch && launch->nest == id)
        at.push_back(static_cast<int>(p));
  return at;
}

}  // namespace

void lower_traffic(Program& program, std::vector<Decision>* decisions) {
  struct Candidate {
    std::vector<loop::NestId> nests;
    double gain;
  };
  std::vector<Candidate> candidates;
  const ChainFinder all(program);
  std::string why;
  for (int at = 0; at < static_cast<int>(program.steps.size()); ++at) {
    std::vector<int> steps = {at};
    bool kept = false;
    while (steps.size() < kLongestChain && !kept) {
      const int next = all.chains().first_reader_of(steps.back());
      if (next < 0) break;
      kept = all.chains().reader_of(steps.back()) < 0;
      // The next GEMM loads its rows from memory as fast as it multiplies them, and has better tiles on its
      // own.
      if (kept && is_contraction(*nest_at(program, program.steps, next))) break;
      steps.push_back(next);
      const auto found = all.find(steps, why);
      if (!found) continue;
      Candidate candidate{{}, found->gain};
      for (int p : steps)
        candidate.nests.push_back(std::get<Launch>(program.steps[static_cast<size_t>(p)].node).nest);
      candidates.push_back(std::move(candidate));
    }
  }
  // The best candidate first. One with a nest that is already part of a better one is skipped.
  sort_stable(candidates, [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
  for (const Candidate& candidate : candidates) {
    const std::vector<int> at = positions(program, candidate.nests);
    if (at.size() != candidate.nests.size()) continue;
    const auto found = ChainFinder(program).find(at, why);
    if (!found) continue;
    const RowChain& chain = found->chain;
    if (decisions) {
      Expr bytes = 0;
      for (size_t i = 0; i < chain.passing.size(); ++i) {
        const loop::Buffer& buffer = program[chain.passing[i].buffer];
        const int times = i < chain.own() ? 2 : 1;  // written and read, or read
        bytes += times * loop::element_count(buffer.shape) * byte_size(buffer.dtype);
      }
      const size_t others = at.size() - 1;
      decisions->push_back(
          {program[candidate.nests.back()].name, "strips", true,
           cat("with the ", others > 1 ? cat(others, " nests") : "nest", " before it, ",
               chain.most * chain.rows.back().scale, " rows at a time, which stay in a cache"),
           sym::simplify(bytes, program.facts)});
    }
    make_depth_first(program, chain);
  }
}

std::string slower(const Program& program, const std::vector<int>& at) {
  std::string why;
  return ChainFinder(program).find(at, why) ? "" : why;
}

}  // namespace stridec::schedule
