#include "compiler/schedule/fusion/reduce_peak.h"

#include <algorithm>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/cost/tile_cost.h"
#include "compiler/schedule/fusion/depth_first_chain.h"
#include "compiler/schedule/fusion/depth_first_cost.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/memory/compaction_copy.h"
#include "compiler/schedule/memory/liveness.h"
#include "compiler/schedule/memory/split_live_range.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::Program;

// Bytes of intermediates per tile. This is more than for tiles that are meant to be fast, but leaves room for
// weights in a core's cache.
constexpr int64_t kPassing = 512 << 10;
constexpr double kMostTime = 0.015;  // of additional time, as a share of a run's time without tiles
constexpr double kLeastGain = 0.03;  // share of the live memory
constexpr int64_t kMuch = 1 << 20;
// As shares of a peak: live memory above kLevel counts, and it has to decrease by kLeastExcess.
constexpr double kLevel = 0.9, kLeastExcess = 0.01;

class Fuser {
 public:
  Fuser(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void run() {
    add_work();
    // Several steps may be equally high, so the peak only decreases with the last of them.
    Program best = program_;
    std::vector<Decision> kept, made;
    Curves now = curves();
    std::vector<int64_t> least = peaks(now);
    while (improve(now, &made)) {
      now = curves();
      if (gain_of(least, peaks(now)) < kLeastGain) continue;
      best = program_;
      kept = made;
      least = peaks(now);
    }
    program_ = std::move(best);
    if (decisions_) decisions_->insert(decisions_->end(), kept.begin(), kept.end());
  }

  // Why a chain of these launches in the unchanged program is not fused.
  std::string refusal(const std::vector<int>& at) {
    add_work();
    curves();
    std::string why;
    return RowChains(program_, flow_).chain_of(at, fits_, why)
               ? cat("peak memory would not shrink by ", static_cast<int>(100 * kLeastGain), " %")
               : why;
  }

 private:
  void add_work() {
    for (const loop::Step& step : program_.steps)
      if (const auto* launch = std::get_if<Launch>(&step.node)) {
        const Nest& nest = program_[launch->nest];
        const loop::Cost cost = loop::cost_of(program_, nest);
        work_ += work_of(program_, nest) + cycles_to_move(program_, cost.bytes_read + cost.bytes_written);
      }
  }
  const Nest* nest_at(int at) const { return schedule::nest_at(program_, program_.steps, at); }
  const RowChains::Fits fits_ = [this](RowChain& chain, std::string& why) { return fit(chain, why); };

  using Curves = std::vector<std::vector<int64_t>>;
  Curves curves() {
    flow_ = Flow(program_, program_.steps);
    later_ = future_tiled_groups(program_);
    return Liveness(program_, flow_).curves(later_);
  }
  static std::vector<int64_t> peaks(const Curves& curves) {
    std::vector<int64_t> peaks;
    for (const auto& curve : curves) peaks.push_back(*std::max_element(curve.begin(), curve.end()));
    return peaks;
  }
  // The share by which the peaks decrease, averaged over the sizes at which they are high.
  static double gain_of(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
    double gain = 0, counted = 0;
    for (size_t s = 0; s < before.size(); ++s) {
      if (before[s] < kMuch) continue;
      gain += 1 - static_cast<double>(after[s]) / static_cast<double>(before[s]);
      counted += 1;
    }
    return counted == 0 ? 0 : gain / counted;
  }
  // The live memory above a level near the peaks, summed over the steps.
  static double excess(const Curves& curves, const std::vector<int64_t>& peaks) {
    double sum = 0;
    for (size_t s = 0; s < peaks.size(); ++s) {
      const double peak = static_cast<double>(peaks[s]);
      if (peaks[s] < kMuch) continue;
      for (int64_t bytes : curves[s]) sum += std::max(0.0, static_cast<double>(bytes) / peak - kLevel);
    }
    return sum;
  }

  // A change that lowers a peak: depth-first tiles of a chain, with or without compact copies of what later
  // steps read of the chain's inputs; such a copy alone; or an early part of a buffer with its own memory
  // until the rest is computed.
  struct Change {
    const RowChain* chain = nullptr;
    std::vector<Part> copied = {};
    const EarlyPart* apart = nullptr;
  };

  // Makes the change that lowers the excess most.
  bool improve(const Curves& before, std::vector<Decision>* made) {
    const Liveness alive(program_, flow_);
    const std::vector<int64_t> high = peaks(before);
    Change best;
    double least = excess(before, high) - kLeastExcess;
    bool found = false;
    const auto consider = [&](const Change& change) {
      if (cost_of_copies(change) + more_time_ > kMostTime * work_) return;
      const Curves after = with(change, alive);
      const std::vector<int64_t> now = peaks(after);
      for (size_t s = 0; s < now.size(); ++s)
        if (now[s] > std::max(high[s], kMuch)) return;
      const double left = excess(after, high);
      if (left >= least) return;
      best = change;
      least = left;
      found = true;
    };

    std::vector<int> tops;
    for (const auto& curve : before)
      tops.push_back(static_cast<int>(std::max_element(curve.begin(), curve.end()) - curve.begin()) / 2);
    const std::vector<RowChain> chains = through(tops);
    const std::vector<Part> parts = parts_read(program_, flow_);
    for (const RowChain& chain : chains) {
      consider({.chain = &chain});
      std::vector<Part> copied;
      for (const Part& part : parts)
        if (std::find(chain.at.begin(), chain.at.end(), part.after) != chain.at.end()) copied.push_back(part);
      if (!copied.empty()) consider({.chain = &chain, .copied = copied});
    }
    for (const Part& part : parts) consider({.copied = {part}});
    const std::vector<EarlyPart> early = early_parts(program_, flow_);
    for (const EarlyPart& part : early)
      if (std::any_of(tops.begin(), tops.end(),
                      [&](int top) { return part.made <= top && top < part.needed; }))
        consider({.apart = &part});
    if (found) make(best, *made);
    return found;
  }

  // Chains through the highest step at each of the sizes, except those that tile_and_fuse() will form anyway.
  std::vector<RowChain> through(const std::vector<int>& tops) const {
    const RowChains finder(program_, flow_);
    std::vector<RowChain> chains;
    for (int top : tops)
      for (RowChain& chain : finder.through(top, fits_))
        if (std::none_of(later_.begin(), later_.end(),
                         [&](const StepGroup& group) { return group.at == chain.at; }))
          chains.push_back(std::move(chain));
    return chains;
  }

  // The curves after the change. `alive`: liveness of the unchanged program.
  Curves with(const Change& change, const Liveness& alive) const {
    if (change.apart) {
      Program trial = program_;
      split_off(trial, flow_, *change.apart);
      return Liveness(trial, Flow(trial, trial.steps)).curves(future_tiled_groups(trial));
    }
    std::vector<StepGroup> groups;
    std::vector<PartCopy> copies;
    for (const StepGroup& group : later_)
      if (!change.chain || std::none_of(group.at.begin(), group.at.end(), [&](int at) {
            const std::vector<int>& chain = change.chain->at;
            return std::find(chain.begin(), chain.end(), at) != chain.end();
          }))
        groups.push_back(group);
    if (change.chain) groups.push_back(group_of(*change.chain));
    for (const Part& part : change.copied) copies.push_back({part.from, behind(change, part), part.bytes});
    return alive.curves(groups, copies);
  }
  static int behind(const Change& change, const Part& part) {
    return change.chain ? change.chain->at.back() : part.after;
  }

  double cost_of_copies(const Change& change) const {
    double cycles = 0;
    for (const Part& part : change.copied) cycles += cycles_to_move(program_, 2 * part.bytes);
    if (change.apart) {
      const sym::Expr numbers = loop::element_count(change.apart->shape);
      cycles += cycles_to_move(program_, 2 * numbers * byte_size(program_[change.apart->of].dtype));
    }
    return cycles;
  }

  void make(const Change& change, std::vector<Decision>& made) {
    more_time_ += cost_of_copies(change);
    if (change.apart) {
      const Nest* needs = nest_at(change.apart->needed);
      made.push_back(decision_about(*nest_at(change.apart->made),
                                    needs ? needs->name : program_[change.apart->of].name, true,
                                    "stored by itself and copied: the tensor that it becomes a part of is "
                                    "allocated later, which lowers peak memory"));
      split_off(program_, flow_, *change.apart);
      return;
    }
    for (const Part& part : change.copied) {
      const int after = behind(change, part);
      copy_part(program_, flow_, part, after);
      if (!change.chain)
        made.push_back(decision_about(*nest_at(after + 1), program_[part.from].name, true,
                                      "the part that is read later is copied, which lowers peak memory"));
      flow_ = Flow(program_, program_.steps);
    }
    if (!change.chain) return;
    const RowChain& chain = *change.chain;
    const size_t others = chain.at.size() - 1;
    made.push_back({nest_at(chain.at.back())->name, "strips", true,
                    cat("with the ", others > 1 ? cat(others, " nests") : "nest", " before it, ",
                        chain.most * chain.rows.back().scale, " rows at a time, which lowers peak memory"),
                    0});
    more_time_ += cost_of_tiles(program_, flow_, chain).again;
    make_depth_first(program_, chain);
  }

  // Whether tiles of the chain take little more time; chooses their size.
  bool fit(RowChain& chain, std::string& why) const {
    if (!choose_length(program_, chain, kPassing, why)) return false;
    const TileCost cost = cost_of_tiles(program_, flow_, chain);
    chain.finest = finest_length(program_, chain, cost);
    why = "weights would be read again for each tile";
    if (cost.weights > kWeightTraffic * 2 * cost.passing) return false;
    why = "rows at tile borders would be computed twice, which adds too much work";
    return cost.again + more_time_ <= kMostTime * work_;
  }
  StepGroup group_of(const RowChain& chain) const {
    StepGroup group{.at = chain.at, .own = {}, .bytes = own_bytes(program_, chain)};
    for (const RowChain::Passing& each : chain.passing) group.own.push_back(each.buffer);
    return group;
  }

  Program& program_;
  std::vector<Decision>* decisions_;
  Flow flow_;
  std::vector<StepGroup> later_;
  double work_ = 0, more_time_ = 0;  // cycles
};

}  // namespace

void reduce_peak(Program& program, std::vector<Decision>* decisions) { Fuser(program, decisions).run(); }

std::string why_peak_stays(const Program& program, const std::vector<int>& at) {
  Program same = program;
  return Fuser(same, nullptr).refusal(at);
}

}  // namespace stridec::schedule
