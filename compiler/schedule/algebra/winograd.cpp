#include "compiler/schedule/algebra/winograd.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/winograd_nests.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/tile_cost.h"
#include "compiler/schedule/memory/memory_plan.h"

namespace stridec::schedule {
namespace {

using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Steps;
using sym::Expr;

// Cycles of one core. The figures are not specific to one machine, so that the choice is the same for every
// variant.
constexpr double kFlops = 56;        // per cycle, of a contraction
constexpr double kBytes = 20;        // per cycle, between neighbouring nests
constexpr double kWeightBytes = 10;  // per cycle; weights come from further away
constexpr double kSumOverhead = 16;  // of the sums of a tile, in channels
constexpr double kLanes = 16;
constexpr int64_t kEnoughTiles = 16;  // fewer rows reuse little of what is loaded
constexpr double kMargin = 1.15;
constexpr int kMostPercent = 98;  // of the time of separate siblings
// Parts of a cycle, so that integer expressions can distinguish costs.
constexpr double kParts = 16;

double typical_tiles(const Program& program, const Convolution& c, int m) {
  return std::max(1.0, typical(sym::ceildiv(c.y.extent, m), program.facts)) *
         std::max(1.0, typical(sym::ceildiv(c.x.extent, m), program.facts));
}
// Bytes of a tile's intermediates between the transforms, and of the weights.
double passing(const Program& program, const Convolution& c, int m) {
  return 4.0 * (m + 2) * (m + 2) * typical_points(c.shared, program.facts) *
         (typical_points(c.channels, program.facts) + typical_points(c.columns, program.facts));
}
double weights(const Program& program, const Convolution& c, int m) {
  return 4.0 * (m + 2) * (m + 2) * typical_points(c.shared, program.facts) *
         typical_points(c.channels, program.facts) * typical_points(c.columns, program.facts);
}

// Cost in parts (kParts) of a cycle for this many images; m = 1: the direct convolution.
Expr transform_cycles(const Program& program, const Convolution& c, int m, Expr images) {
  const auto times = [](double cost, Expr count) {
    return count * static_cast<int64_t>(std::ceil(std::min(cost * kParts, 1e15)));
  };
  const double groups = typical_points(c.shared, program.facts),
               in = typical_points(c.channels, program.facts), out = typical_points(c.columns, program.facts);
  const Expr pixels = c.y.extent * c.x.extent * images;
  if (m == 1)
    return times(2 * 9 * groups * in * out / kFlops, pixels) +
           times(4 * 9 * groups * in * out / kWeightBytes, 1);
  const double t = m + 2;
  const Expr tiles = sym::ceildiv(c.y.extent, m) * sym::ceildiv(c.x.extent, m) * images;
  const double products = 2 * t * t * groups * out * (in + kSumOverhead) / kFlops;
  const double moved = 4 * groups * (in + out) / kBytes;
  const double statements = groups * (std::ceil(in / kLanes) + std::ceil(out / kLanes)) * 3 * t * t;
  return times(products, sym::floordiv(tiles * kEnoughTiles, sym::min(kEnoughTiles, tiles + 2))) +
         times(moved, pixels) + times(moved * 2 * t * t + statements, tiles) +
         times(weights(program, c, m) / kWeightBytes, 1);
}

struct TransformChoice {
  int m = 1;          // tile size; 1: the direct convolution
  int percent = 100;  // time of the better tile size in percent of the direct convolution's, at medium sizes
  double cycles = 0;  // of the choice, at the same sizes
  bool cached = false;   // the intermediates stay in cache, tiled or as a whole
  bool streams = false;  // every tile reads the weights from beyond the cache
  int small = 1;         // tile size where m is slower
  Expr condition = 1;    // that m is not slower, if the sizes may be such that it is
};

TransformChoice choose_transform(const Program& program, const Convolution& c) {
  // Weights are read once for all images, so the fewest images that a run can have decide.
  Expr images = 1, fewest = 1;
  for (const Dim& dim : c.own) {
    if (dim.var == c.y.var || dim.var == c.x.var) continue;
    images = images * dim.extent;
    fewest = fewest * std::max<int64_t>(1, program.facts.bounds(dim.extent).lo);
  }
  const auto at = [&](int m, auto&& size) {
    const auto value = sym::evaluate(transform_cycles(program, c, m, fewest), size);
    return value ? static_cast<double>(*value) : 1e18;
  };
  const auto middle = [&](Expr var) {
    return std::optional(static_cast<int64_t>(typical(var, program.facts)));
  };
  const auto modest = [&](Expr var) {
    const sym::Interval range = program.facts.bounds(var);
    return std::optional(std::clamp<int64_t>(kModestSize, range.has_lo() ? range.lo : 1,
                                             range.has_hi() ? std::max<int64_t>(range.hi, 1) : kModestSize));
  };
  const double direct = at(1, middle), two = at(2, middle), four = at(4, middle);
  TransformChoice choice;
  choice.percent = static_cast<int>(100 * std::min(two, four) / direct);
  choice.cycles = direct;
  if (std::min(two, four) >= direct / kMargin) return choice;
  choice.m = four < two ? 4 : 2;
  choice.cycles = std::min(two, four);
  const double tiles = typical_tiles(program, c, choice.m) * typical(fewest, program.facts),
               bytes = passing(program, c, choice.m);
  const bool small = tiles * bytes <= static_cast<double>(kTileCache);
  const bool strips =
      !small && points_of_tile(tiles, static_cast<int64_t>(bytes), weights(program, c, choice.m)) > 0;
  choice.cached = small || strips;
  choice.streams = strips && weights(program, c, choice.m) > static_cast<double>(kWeightCache);
  choice.small = choice.m == 4 && at(2, modest) < at(1, modest) / kMargin ? 2 : 1;
  if (at(choice.small, modest) * kMargin < at(choice.m, modest))
    choice.condition = sym::simplify(sym::le(transform_cycles(program, c, choice.m, images),
                                             transform_cycles(program, c, choice.small, images)),
                                     program.facts);
  return choice;
}

std::string said(const TransformChoice& choice) {
  if (choice.m == 1) return cat("it would take ", choice.percent, " % of the time");
  const auto tiles = [](int m) { return m == 1 ? std::string("none") : cat(m, "x", m); };
  return cat(
      "tiles of ", tiles(choice.m),
      choice.condition.is_const(1) ? "" : cat(", and ", tiles(choice.small), " where sizes are small"));
}

// Replaces the convolutions in a list of steps by their Winograd form. Convolutions of one input are replaced
// together if a shared transform and GEMM take less time than separate ones.
class Applying {
 public:
  Applying(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void block(Steps& steps) {
    const Flow flow(program_, steps);
    std::vector<std::optional<Candidate>> candidates;
    for (const loop::Step& step : steps) candidates.push_back(candidate_of(step));
    Steps out;
    std::vector<bool> gone(steps.size());
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const size_t i = static_cast<size_t>(at);
      if (gone[i]) continue;
      if (!candidates[i]) {
        out.push_back(std::move(steps[i]));
        continue;
      }
      Family family{{at}, candidates[i]->choice};
      for (int other = at + 1; other < static_cast<int>(steps.size()); ++other)
        if (!gone[static_cast<size_t>(other)] && candidates[static_cast<size_t>(other)])
          join(steps, flow, candidates, other, family);
      Steps originals;
      std::vector<Sibling> siblings;
      for (int member : family.at) {
        const size_t m = static_cast<size_t>(member);
        gone[m] = true;
        originals.push_back(steps[m]);
        const Named& named = family.at.size() > 1 ? candidates[m]->renumbered : candidates[m]->own;
        siblings.push_back({*named.nest, named.conv});
      }
      loop::with_provenance(siblings[0].nest, [&] {
        for (loop::Step& step : replaced(siblings, family.choice, std::move(originals)))
          out.push_back(std::move(step));
        return 0;
      });
    }
    steps = std::move(out);
  }

 private:
  struct Named {
    std::unique_ptr<Nest> nest;  // `conv` points into it
    Convolution conv;
  };
  // With its own names, and with the names that siblings have in common.
  struct Candidate {
    Named own, renumbered;
    TransformChoice choice;
  };
  // Positions of convolutions of one input.
  struct Family {
    std::vector<int> at;
    TransformChoice choice;
  };

  std::optional<Named> named(Nest nest) const {
    Named out{.nest = std::make_unique<Nest>(std::move(nest)), .conv = {}};
    std::string reason;
    const auto conv = match_winograd(program_, *out.nest, &reason);
    if (!conv) return std::nullopt;
    out.conv = *conv;
    return out;
  }

  std::optional<Candidate> candidate_of(const loop::Step& step) const {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return std::nullopt;
    const Nest& nest = program_[launch->nest];
    return loop::with_provenance(nest, [&]() -> std::optional<Candidate> {
      auto own = named(nest);
      if (!own) return std::nullopt;
      Nest copy = nest;
      loop::renumber(copy);
      const TransformChoice choice = choose_transform(program_, own->conv);
      return Candidate{std::move(*own), *named(std::move(copy)), choice};
    });
  }

  // Adds the other convolution to the family if it is a sibling and that pays.
  void join(const Steps& steps, const Flow& flow, const std::vector<std::optional<Candidate>>& candidates,
            int at, Family& family) {
    const auto candidate = [&](int member) -> const Candidate& {
      return *candidates[static_cast<size_t>(member)];
    };
    const Candidate &first = candidate(family.at[0]), &other = candidate(at);
    if (!are_siblings(first.renumbered.conv, other.renumbered.conv)) return;
    std::vector<Sibling> siblings;
    for (int member : family.at)
      siblings.push_back({*candidate(member).renumbered.nest, candidate(member).renumbered.conv});
    siblings.push_back({*other.renumbered.nest, other.renumbered.conv});
    Convolution joined = first.renumbered.conv;
    joined.columns = joined_columns(siblings);
    const TransformChoice choice = choose_transform(program_, joined);
    if (choice.m == 1) return;
    const auto note = [&](bool fused, std::string reason) {
      if (decisions_)
        decisions_->push_back(
            decision_about(program_, *first.own.nest, *other.own.nest, fused, std::move(reason)));
    };
    const int percent = static_cast<int>(100 * choice.cycles / (family.choice.cycles + other.choice.cycles));
    const std::string time = cat("one transform of what both read, and ", percent, " % of their time");
    if (!choice.cached && (family.choice.cached || other.choice.cached))
      return note(false,
                  cat(time, ", but the intermediates between the transforms would be too large for a cache"));
    if (choice.streams && !(family.choice.streams && other.choice.streams))
      return note(false, cat(time, ", but the weights of both would be too large for a cache"));
    if (percent > kMostPercent) return note(false, time);
    if (!may_move(program_, steps, flow, at, family.at[0] - 1))  // independent of all members
      return note(false, "a step between them prevents it");
    note(true, time);
    family.at.push_back(at);
    family.choice = choice;
  }

  Steps replaced(const std::vector<Sibling>& siblings, const TransformChoice& choice, Steps originals) {
    if (decisions_) {
      decisions_->push_back(decision_about(siblings[0].nest, "winograd", choice.m > 1, said(choice)));
      decisions_->back().producer = name_of(siblings);
    }
    const auto tiles = [&](int m) -> Steps {
      if (m == 1) return originals;
      Steps steps;
      for (Nest& part : winograd_nests(program_, siblings, m))
        steps.push_back({loop::Launch{loop::add_nest(program_, std::move(part))}});
      return steps;
    };
    if (choice.condition.is_const(1)) return tiles(choice.m);
    return {{loop::If{
        .condition = choice.condition, .then_steps = tiles(choice.m), .else_steps = tiles(choice.small)}}};
  }

  Program& program_;
  std::vector<Decision>* decisions_;
};

}  // namespace

std::vector<Nest> winograd(Program& program, const Nest& nest, int m, std::string* reason) {
  const auto conv = match_winograd(program, nest, reason);
  if (!conv) return {};
  const std::vector<Sibling> alone = {{nest, *conv}};
  return winograd_nests(program, alone, m);
}

void apply_winograd(Program& program, std::vector<Decision>* decisions) {
  Applying applying(program, decisions);
  loop::for_each_block(program.steps, [&](Steps& steps) { applying.block(steps); });
}

}  // namespace stridec::schedule
