#include "compiler/schedule/row_peaks.h"

#include <algorithm>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/schedule/alive.h"
#include "compiler/schedule/part_copies.h"
#include "compiler/schedule/row_chain.h"
#include "compiler/schedule/row_chain_cost.h"
#include "compiler/schedule/strips.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::Program;

constexpr double kMostTime = 0.01;   // more than without strips, of a run's
constexpr double kLeastGain = 0.03;  // of what is alive at once
constexpr int64_t kMuch = 1 << 20;
// Of a peak: what is alive above it counts, and has to be less by so much.
constexpr double kLevel = 0.9, kLeastExcess = 0.01;

class Fuser {
 public:
  Fuser(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void run() {
    add_work();
    // Several places are as high: only when the last of them is lower something is gained.
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

  // Of a chain of these launches, of the program as it is.
  std::string refusal(const std::vector<int>& at) {
    add_work();
    curves();
    std::string why;
    return RowChains(program_, flow_).chain_of(at, fits_, why)
               ? cat("what is alive at once would not be less by ", static_cast<int>(100 * kLeastGain), " %")
               : why;
  }

 private:
  void add_work() {
    for (const loop::Step& step : program_.steps)
      if (const auto* launch = std::get_if<Launch>(&step.node))
        work_ += work_of(program_, program_[launch->nest]);
  }
  const Nest* nest_at(int at) const { return schedule::nest_at(program_, program_.steps, at); }
  const RowChains::Fits fits_ = [this](RowChain& chain, std::string& why) { return fit(chain, why); };

  using Curves = std::vector<std::vector<int64_t>>;
  Curves curves() {
    flow_ = make_flow(program_, program_.steps);
    later_ = later_strips(program_);
    return Alive(program_, flow_).curves(later_);
  }
  static std::vector<int64_t> peaks(const Curves& curves) {
    std::vector<int64_t> peaks;
    for (const auto& curve : curves) peaks.push_back(*std::max_element(curve.begin(), curve.end()));
    return peaks;
  }
  // By what share the peaks are lower, over the sizes at which they are high.
  static double gain_of(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
    double gain = 0, counted = 0;
    for (size_t s = 0; s < before.size(); ++s) {
      if (before[s] < kMuch) continue;
      gain += 1 - static_cast<double>(after[s]) / static_cast<double>(before[s]);
      counted += 1;
    }
    return counted == 0 ? 0 : gain / counted;
  }
  // What is alive above a level near the peaks, step by step.
  static double excess(const Curves& curves, const std::vector<int64_t>& peaks) {
    double sum = 0;
    for (size_t s = 0; s < peaks.size(); ++s) {
      const double peak = static_cast<double>(peaks[s]);
      if (peaks[s] < kMuch) continue;
      for (int64_t bytes : curves[s]) sum += std::max(0.0, static_cast<double>(bytes) / peak - kLevel);
    }
    return sum;
  }

  // One chain through a peak becomes strips: the one that takes most off what is high.
  bool improve(const Curves& before, std::vector<Decision>* made) {
    const Alive alive(program_, flow_);
    const std::vector<int64_t> high = peaks(before);
    const RowChains finder(program_, flow_);
    std::vector<RowChain> chains;
    for (const auto& curve : before) {
      const auto highest = std::max_element(curve.begin(), curve.end()) - curve.begin();
      for (RowChain& chain : finder.through(static_cast<int>(highest) / 2, fits_))
        chains.push_back(std::move(chain));
    }
    const std::vector<Part> parts = parts_read(program_, flow_);
    const RowChain* best = nullptr;
    std::vector<Part> best_parts;
    double least = excess(before, high) - kLeastExcess;
    const auto consider = [&](const RowChain& chain, const std::vector<Part>& copied) {
      std::vector<StepGroup> groups = {group_of(chain)};
      for (const StepGroup& group : later_)
        if (std::none_of(group.at.begin(), group.at.end(), [&](int at) {
              return std::find(chain.at.begin(), chain.at.end(), at) != chain.at.end();
            }))
          groups.push_back(group);
      std::vector<PartCopy> copies;
      for (const Part& part : copied) copies.push_back({part.from, chain.at.back(), part.bytes});
      const Curves after = alive.curves(groups, copies);
      const std::vector<int64_t> now = peaks(after);
      bool higher = false;
      for (size_t s = 0; s < now.size(); ++s) higher = higher || now[s] > std::max(high[s], kMuch);
      const double left = excess(after, high);
      if (higher || left >= least) return;
      best = &chain;
      best_parts = copied;
      least = left;
    };
    for (const RowChain& chain : chains) {
      consider(chain, {});
      std::vector<Part> copied;
      for (const Part& part : parts)
        if (std::find(chain.at.begin(), chain.at.end(), part.after) != chain.at.end()) copied.push_back(part);
      if (!copied.empty()) consider(chain, copied);
    }
    if (!best) return false;
    for (const Part& part : best_parts) copy_part(program_, flow_, part, best->at.back());
    const size_t others = best->at.size() - 1;
    made->push_back({nest_at(best->at.back())->name, "strips", true,
                     cat("with the ", others > 1 ? cat(others, " nests") : "nest", " before it, ",
                         best->most * best->rows.back().scale, " rows at a time, and less is alive at once"),
                     0});
    more_time_ += cost_of_strips(program_, flow_, *best).again;
    make_row_strips(program_, *best);
    return true;
  }

  // Strips in little more time.
  bool fit(RowChain& chain, std::string& why) const {
    if (!choose_length(program_, chain, kStripCache, why)) return false;
    const StripCost cost = cost_of_strips(program_, flow_, chain);
    why = "weights would be read for each strip";
    if (cost.weights > kWeightTraffic * 2 * cost.passing) return false;
    why = "rows at the borders of strips would be computed twice, and a run would have much more to do";
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

void lower_peaks(Program& program, std::vector<Decision>* decisions) { Fuser(program, decisions).run(); }

std::string no_lower(const Program& program, const std::vector<int>& at) {
  Program same = program;
  return Fuser(same, nullptr).refusal(at);
}

}  // namespace stridec::schedule
