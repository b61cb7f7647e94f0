#include "compiler/schedule/fusion/explain_unfused.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "compiler/base/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Kernel;
using loop::Program;
using Numbers = std::vector<int>;  // ascending
using Nodes = Numbers;             // of the model

bool holds(const Nodes& all, const Nodes& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

bool meet(const Numbers& a, const Numbers& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

// Numbers texts in the order in which they come.
class Numbering {
 public:
  Numbers of(const std::vector<std::string>& texts) {
    Numbers out;
    for (const std::string& text : texts)
      out.push_back(numbers_.emplace(text, static_cast<int>(numbers_.size())).first->second);
    std::ranges::sort(out);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  }

 private:
  std::unordered_map<std::string, int> numbers_;
};

class ReasonFinder {
 public:
  ReasonFinder(const Program& program, const std::vector<Kernel>& kernels,
               const std::vector<Decision>& decisions)
      : program_(program), kernels_(kernels), decisions_(decisions), used_(decisions.size(), false) {
    int count = 0;
    number_blocks(program.steps, count);
    for (const Kernel& kernel : kernels) {
      of_kernel_.push_back(nodes_.of(kernel.nodes));
      for (const int node : of_kernel_.back()) kernels_of_[node].push_back(of_kernel_.size() - 1);
      effects_.push_back(effects(kernel));
    }
    for (size_t d = 0; d < decisions.size(); ++d) {
      of_producer_.push_back(nodes_.of(decisions[d].producer_nodes));
      of_consumer_.push_back(nodes_.of(decisions[d].consumer_nodes));
      const Nodes& nodes = decisions[d].apart ? of_producer_[d] : of_consumer_[d];
      if (!nodes.empty()) about_[*nodes.begin()].push_back(d);
      if (decisions[d].fused && decisions[d].producer_nodes.empty())
        for (const std::string& part : decisions[d].passing) moved_[part] = decisions[d].consumer;
    }
    for (const Decision& decision : decisions) {
      std::vector<std::string> places;
      for (const std::string& name : decision.passing) places.push_back(place_of(name));
      passing_.push_back(buffers_.of(places));
    }
  }

  std::vector<Unfused> run() {
    for (size_t to = 0; to < kernels_.size(); ++to) {
      const std::vector<size_t> about = decisions_about(of_kernel_[to]);
      for (const size_t from : written_before(to))
        if (const Numbers passing = passing_between(from, to); !passing.empty())
          add(from, to, passing, about);
      for (const BufferId id : effects_[to].writes) writers_[id].push_back(to);
    }
    for (size_t i = 0; i < found_.size(); ++i)
      place_in_found_.emplace(std::pair(found_[i].producer, found_[i].consumer), i);
    for (size_t d = 0; d < decisions_.size(); ++d) add_others(d);
    return std::move(found_);
  }

 private:
  // The buffer that now holds the contents of the one with this name.
  const std::string& place_of(const std::string& name) const {
    const auto found = moved_.find(name);
    return found == moved_.end() || found->second == name ? name : place_of(found->second);
  }

  // Records which list of steps launches each nest.
  void number_blocks(const loop::Steps& steps, int& count) {
    const int own = count++;
    for (const loop::Step& step : steps)
      std::visit(loop::Overloaded{
                     [&](const loop::Launch& launch) { blocks_[launch.nest] = own; },
                     [&](const loop::TiledGroup& strips) {
                       for (const loop::Step& part : strips.body)
                         blocks_[std::get<loop::Launch>(part.node).nest] = own;
                     },
                     [&](const loop::If& branches) {
                       number_blocks(branches.then_steps, count);
                       number_blocks(branches.else_steps, count);
                     },
                     [&](const loop::While& loop) { number_blocks(loop.body, count); },
                     [](const auto&) {},
                 },
                 step.node);
  }

  Effects effects(const Kernel& kernel) const {
    Effects all;
    const auto own = [&](BufferId id) {
      return kernel.strips && std::ranges::count(kernel.strips->own, id) > 0;
    };
    for (const loop::NestId id : kernel.nests) {
      const Effects one = effects_of(program_[id]);
      std::ranges::copy_if(one.reads, std::back_inserter(all.reads), std::not_fn(own));
      std::ranges::copy_if(one.writes, std::back_inserter(all.writes), std::not_fn(own));
    }
    return all;
  }

  // The earlier kernels that write a buffer which this one reads, in order.
  std::vector<size_t> written_before(size_t to) const {
    std::vector<size_t> all;
    for (const BufferId id : effects_[to].reads)
      if (const auto found = writers_.find(id); found != writers_.end())
        all.insert(all.end(), found->second.begin(), found->second.end());
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  }

  // Numbers of the buffers that `from` writes and `to` reads.
  Numbers passing_between(size_t from, size_t to) {
    std::vector<std::string> names;
    for (const BufferId id : effects_[from].writes)
      if (reads(effects_[to], id) && !apart(from, to, id)) names.push_back(program_[id].name);
    return buffers_.of(names);
  }

  // Whether the kernels access disjoint parts of the buffer.
  bool apart(size_t from, size_t to, BufferId id) const {
    for (const loop::NestId a : kernels_[from].nests)
      for (const loop::NestId b : kernels_[to].nests)
        if (writes(effects_of(program_[a]), id) && reads(effects_of(program_[b]), id) &&
            !access_disjoint(program_, program_[a], program_[b], id))
          return false;
    return true;
  }

  // `about`: decisions_about(the nodes of `to`).
  void add(size_t from, size_t to, const Numbers& passing, const std::vector<size_t>& about) {
    const Nodes &producer = of_kernel_[from], &consumer = of_kernel_[to];
    Unfused pair{&kernels_[from], &kernels_[to], {}, {}};
    // from decisions about other producers, made before the buffer was moved to its place
    Unfused stored = pair;
    std::vector<std::string> made;  // how one operator became several kernels
    for (const size_t d : about) {
      const Decision& decision = decisions_[d];
      const bool by_producer = holds(producer, of_producer_[d]);
      if (decision.apart && decision.fused && by_producer && holds(consumer, of_producer_[d]))
        made.push_back(cat(decision.consumer, ": ", decision.reason));
      if (decision.apart || decision.fused || !holds(consumer, of_consumer_[d])) continue;
      const bool passes = meet(passing_[d], passing);
      // Nodes alone do not tell whether the decision was about nests within one of the two kernels; the
      // buffers do.
      const bool within =
          (by_producer && holds(producer, of_consumer_[d])) || holds(consumer, of_producer_[d]);
      if (by_producer ? within && !passes : !passes) continue;
      used_[d] = true;
      say(by_producer ? pair : stored, decision);
    }
    if (pair.reasons.empty()) pair = std::move(stored);
    if (pair.reasons.empty()) pair.reasons = std::move(made);
    if (pair.reasons.empty() && blocks_.at(kernels_[from].nests[0]) != blocks_.at(kernels_[to].nests[0]))
      pair.reasons.push_back("a loop or a branch has one of them alone");
    found_.push_back(std::move(pair));
  }

  // Adds decisions about kernels that exchange no data directly: independent ones, and those with others
  // between them.
  void add_others(size_t d) {
    const Decision& decision = decisions_[d];
    const Nodes &producer = of_producer_[d], &consumer = of_consumer_[d];
    if (used_[d] || decision.apart || decision.fused || producer.empty() || consumer.empty() ||
        meet(producer, consumer))
      return;
    Nodes both;
    std::ranges::set_union(producer, consumer, std::back_inserter(both));
    if (least_of(both)) return;
    const auto from = least_of(producer), to = least_of(consumer);
    if (!from || !to) return;
    const auto [known, fresh] =
        place_in_found_.emplace(std::pair(&kernels_[*from], &kernels_[*to]), found_.size());
    if (fresh) found_.push_back({&kernels_[*from], &kernels_[*to], {}, {}});
    say(found_[known->second], decision);
  }

  // The kernel with the fewest nodes that contains all of these; among equals the last, which reads what the
  // others compute for it.
  std::optional<size_t> least_of(const Nodes& nodes) const {
    // One of the kernels of the node that fewest kernels compute.
    const std::vector<size_t>* few = nullptr;
    for (const int node : nodes) {
      const auto found = kernels_of_.find(node);
      if (found == kernels_of_.end()) return std::nullopt;
      if (!few || found->second.size() < few->size()) few = &found->second;
    }
    if (!few) return std::nullopt;
    std::optional<size_t> least;
    for (const size_t k : *few)
      if (holds(of_kernel_[k], nodes) && (!least || of_kernel_[k].size() <= of_kernel_[*least].size()))
        least = k;
    return least;
  }

  std::vector<size_t> decisions_about(const Nodes& consumer) const {
    std::vector<size_t> all;
    for (const int node : consumer)
      if (const auto found = about_.find(node); found != about_.end())
        all.insert(all.end(), found->second.begin(), found->second.end());
    std::ranges::sort(all);
    return all;
  }

  static void say(Unfused& pair, const Decision& decision) {
    if (!std::ranges::count(pair.reasons, decision.reason)) pair.reasons.push_back(decision.reason);
    pair.bytes.push_back(decision.bytes);
  }

  const Program& program_;
  const std::vector<Kernel>& kernels_;
  const std::vector<Decision>& decisions_;
  Numbering nodes_, buffers_;
  std::vector<Nodes> of_kernel_, of_producer_, of_consumer_;
  std::vector<Numbers> passing_;                             // by decision: buffers, at their new places
  std::unordered_map<int, std::vector<size_t>> kernels_of_;  // by node
  std::vector<Effects> effects_;
  std::unordered_map<BufferId, std::vector<size_t>> writers_;  // kernels up to the one that is looked at
  // decisions by the first node of their consumer, or of their only nest
  std::map<int, std::vector<size_t>> about_;
  std::map<loop::NestId, int> blocks_;
  std::unordered_map<std::string, std::string> moved_;  // each moved buffer's new place
  std::vector<bool> used_;
  std::vector<Unfused> found_;
  std::map<std::pair<const Kernel*, const Kernel*>, size_t> place_in_found_;
};

}  // namespace

std::vector<Unfused> explain_unfused(const Program& program, const std::vector<Kernel>& kernels,
                                     const std::vector<Decision>& decisions) {
  return ReasonFinder(program, kernels, decisions).run();
}

}  // namespace stridec::schedule
