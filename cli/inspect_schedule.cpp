#include "cli/inspect_schedule.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cli/refused.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/typical.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using schedule::Choice;
using schedule::Decision;

struct Counted {
  std::vector<const Decision*> decisions;  // equal but for their nodes
  const Decision* operator->() const { return decisions.front(); }
  size_t times() const { return decisions.size(); }
};

std::vector<Counted> counted(const std::vector<const Decision*>& decisions) {
  std::vector<Counted> all;
  std::map<std::tuple<std::string, std::string, bool, std::string, std::string>, size_t> known;
  for (const Decision* d : decisions) {
    const auto [found, fresh] = known.emplace(
        std::tuple(d->producer, d->consumer, d->fused, d->reason, sym::to_string(d->bytes)), all.size());
    if (fresh) all.emplace_back();
    all[found->second].decisions.push_back(d);
  }
  return all;
}

std::vector<const Decision*> all_of(const std::vector<Decision>& decisions) {
  std::vector<const Decision*> all;
  for (const Decision& d : decisions) all.push_back(&d);
  return all;
}

// Two kernels that stayed separate, with what each rule said of them, or of what went into them.
struct Pair {
  std::string producer, consumer, producer_nodes, consumer_nodes;
  std::vector<std::string> reasons;
  uint64_t bytes = 0;
  size_t times = 1;  // of the model, as repeated layers have it
};

// The nests that a program launches, asked for what nests that went into them became.
class Kernels {
 public:
  explicit Kernels(const loop::Program& program) {
    std::set<loop::NestId> known;
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      if (const auto* launch = std::get_if<loop::Launch>(&step.node);
          launch && known.insert(launch->nest).second)
        add(program[launch->nest]);
    });
  }

  // The smallest one that computes all these nodes; null: none does.
  const loop::Nest* of(const std::vector<std::string>& nodes) const {
    const std::vector<const loop::Nest*> all = computing(nodes, {});
    const auto least =
        std::ranges::min_element(all, {}, [](const loop::Nest* nest) { return nest->nodes.size(); });
    return least == all.end() ? nullptr : *least;
  }
  // Whether a nest with the first nodes and one with the others are in one kernel. Of nests of the same nodes, as those that
  // one operator begins as, only a kernel that has no other like it says so.
  bool together(const std::vector<std::string>& nodes, const std::vector<std::string>& others) const {
    const size_t both = computing(nodes, others).size();
    return nodes == others ? both == 1 : both > 0;
  }
  bool has(const std::string& name) const { return names_.contains(name); }

 private:
  void add(const loop::Nest& nest) {
    names_.insert(nest.name);
    for (const std::string& node : std::set(nest.nodes.begin(), nest.nodes.end()))
      by_node_[node].push_back(&nest);
  }
  std::vector<const loop::Nest*> computing(const std::vector<std::string>& nodes,
                                           const std::vector<std::string>& others) const {
    std::map<const loop::Nest*, size_t> found;
    std::set<std::string> wanted(nodes.begin(), nodes.end());
    wanted.insert(others.begin(), others.end());
    for (const std::string& node : wanted)
      if (const auto at = by_node_.find(node); at != by_node_.end())
        for (const loop::Nest* nest : at->second) ++found[nest];
    std::vector<const loop::Nest*> all;
    for (const auto& [nest, count] : found)
      if (count == wanted.size()) all.push_back(nest);
    return all;
  }

  std::map<std::string, std::vector<const loop::Nest*>> by_node_;
  std::set<std::string> names_;
};

uint64_t typical_bytes(const Decision& decision, const sym::Facts& facts) {
  return static_cast<uint64_t>(std::max(0.0, schedule::typical(decision.bytes, facts)));
}

// Of the decisions that are about nests of known nodes; the others, and those that fused, are left in `others`. Rules ask again
// with each nest that grows, and what one refuses another may fuse: what counts is which kernels there are in the end. Where nodes
// do not tell nests apart, as those of one operator or of none, names do.
std::vector<Pair> separate_pairs(const std::vector<Decision>& decisions, const loop::Program& program,
                                 std::vector<const Decision*>& others) {
  const Kernels kernels(program);
  std::set<std::pair<std::string, std::string>> fused;
  for (const Decision& d : decisions)
    if (d.fused) fused.emplace(d.producer, d.consumer);
  std::vector<Pair> pairs;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, size_t> known;
  for (const Decision& d : decisions) {
    const bool pair = !d.producer_nodes.empty() && !d.consumer_nodes.empty();
    if (d.fused || (!pair && !fused.contains({d.producer, d.consumer}))) others.push_back(&d);
    if (!pair || d.fused || kernels.together(d.producer_nodes, d.consumer_nodes)) continue;
    if (d.producer_nodes == d.consumer_nodes && !(kernels.has(d.producer) && kernels.has(d.consumer)))
      continue;
    const auto of = [&](const std::string& name, const std::vector<std::string>& nodes) {
      const loop::Nest* kernel = d.producer_nodes == d.consumer_nodes ? nullptr : kernels.of(nodes);
      return kernel ? std::pair(kernel->name, loop::nodes_of(*kernel))
                    : std::pair(name, loop::nodes_of(nodes));
    };
    const auto [producer, producer_nodes] = of(d.producer, d.producer_nodes);
    const auto [consumer, consumer_nodes] = of(d.consumer, d.consumer_nodes);
    const auto [found, fresh] =
        known.emplace(std::tuple(producer, producer_nodes, consumer, consumer_nodes), pairs.size());
    if (fresh) pairs.push_back({producer, consumer, producer_nodes, consumer_nodes});
    Pair& one = pairs[found->second];
    one.bytes = std::max(one.bytes, typical_bytes(d, program.facts));
    if (!std::ranges::count(one.reasons, d.reason)) one.reasons.push_back(d.reason);
  }
  std::vector<Pair> distinct;
  for (Pair& pair : pairs) {
    const auto same = std::ranges::find_if(distinct, [&](const Pair& other) {
      return std::tie(other.producer, other.consumer, other.reasons, other.bytes) ==
             std::tie(pair.producer, pair.consumer, pair.reasons, pair.bytes);
    });
    if (same == distinct.end())
      distinct.push_back(std::move(pair));
    else
      ++same->times;
  }
  return distinct;
}

std::string times(size_t count) { return count > 1 ? cat(" (", count, " times)") : ""; }

std::string ratio(double of, double to) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", of / std::max(to, 1.0));
  return text;
}

Json to_json(const Choice& choice) {
  Json json = {{"name", choice.nests.front()},
               {"launches", choice.nests.size()},
               {"schedule", loop::to_string(choice.schedule)},
               {"chosen_by", choice.given ? "measuring" : "model"},
               {"in_strips", choice.in_strips},
               {"expected_cycles", choice.cycles},
               {"candidates", choice.space},
               {"others", Json::array()}};
  for (const Choice::Other& other : choice.others)
    json["others"].push_back({{"family", other.family}, {"expected_cycles", other.cycles}});
  return json;
}

// What a GPU's program runs: most of its schedules are rules, whose candidates have no costs to compare.
std::vector<Choice> launches(const Compilation& made) {
  std::vector<Choice> all;
  std::set<loop::NestId> given;
  if (!made.tuned.empty())
    for (const tune::Tuned& kernel : made.tuned.front())
      if (kernel.origin != tune::Tuned::Origin::kDefault)
        given.insert(kernel.nests.begin(), kernel.nests.end());
  const loop::Program& program = made.gpu_variants.front().program;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node))
      all.push_back({.nests = {program[launch->nest].name},
                     .schedule = program[launch->nest].schedule,
                     .given = given.contains(launch->nest)});
  });
  return all;
}

void print(const Choice& choice) {
  constexpr size_t kOthers = 4;
  std::printf(" kernel    %s%s: %s\n", choice.nests.front().c_str(), times(choice.nests.size()).c_str(),
              loop::to_string(choice.schedule).c_str());
  if (choice.space == 0) return;
  std::printf("           %s; %s",
              choice.given       ? (choice.cycles > 0 ? "measured best" : "given")
              : choice.in_strips ? "the model's choice, as for all parts of strips, which are not tuned"
                                 : "the model's choice",
              choice.space == 1 ? "the only candidate" : cat("one of ", choice.space, " candidates").c_str());
  if (choice.cycles == 0) {  // by hand: what applies need not be a candidate
    std::printf("; the schedule in the database is none of these\n");
    return;
  }
  std::printf(", %.3g cycles of a core expected", choice.cycles);
  const size_t shown = std::min(kOthers, choice.others.size());
  for (size_t i = 0; i < shown; ++i)
    std::printf("%s%s %s", i == 0 ? "; others, of these cycles: " : ", ", choice.others[i].family.c_str(),
                ratio(choice.others[i].cycles, choice.cycles).c_str());
  if (choice.others.size() > shown) std::printf(", %zu more", choice.others.size() - shown);
  std::printf("\n");
}

// The sizes that bytes and cycles are those of; empty: the program has no symbols.
std::vector<std::pair<std::string, int64_t>> typical_sizes(const loop::Program& program) {
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (const loop::Symbol& symbol : program.symbols)
    sizes.emplace_back(symbol.var.name(), static_cast<int64_t>(schedule::typical(symbol.var, program.facts)));
  return sizes;
}

void print(const Pair& pair) {
  std::printf(" separate  %s of %s -> %s of %s: %s", pair.producer.c_str(), pair.producer_nodes.c_str(),
              pair.consumer.c_str(), pair.consumer_nodes.c_str(), join(pair.reasons, "; ").c_str());
  if (pair.bytes > 0) std::printf("; would save %s", human_bytes(pair.bytes).c_str());
  std::printf("%s\n", times(pair.times).c_str());
}

void print(const Counted& counted, const sym::Facts& facts) {
  const Decision& d = *counted.decisions.front();
  const uint64_t bytes = typical_bytes(d, facts);
  std::printf(" %-9s %s -> %s: %s", d.fused ? "fused" : "separate", d.producer.c_str(), d.consumer.c_str(),
              d.reason.c_str());
  if (bytes > 0) std::printf("; %s %s", d.fused ? "saves" : "would save", human_bytes(bytes).c_str());
  std::printf("%s\n", times(counted.times()).c_str());
}

}  // namespace

int print_schedule(const Compilation& made, const Globals& globals) {
  const loop::Program& program = *made.programs().front();
  std::vector<const Decision*> others;
  const std::vector<Pair> pairs = separate_pairs(made.decisions, program, others);
  const std::vector<Choice> kernels = made.gpu_variants.empty() ? made.choices : launches(made);
  if (globals.json) {
    Json json = {{"stage", "schedule"},
                 {"typical_sizes", Json::object()},
                 {"decisions", Json::array()},
                 {"separate", Json::array()},
                 {"kernels", Json::array()}};
    for (const auto& [name, size] : typical_sizes(program)) json["typical_sizes"][name] = size;
    for (const Counted& d : counted(all_of(made.decisions))) {
      Json one = {{"producer", d->producer},
                  {"consumer", d->consumer},
                  {"fused", d->fused},
                  {"reason", d->reason},
                  {"times", d.times()}};
      if (!d->bytes.is_const(0)) {
        one["bytes"] = sym::to_string(d->bytes);
        one["typical_bytes"] = typical_bytes(*d.decisions.front(), program.facts);
      }
      for (const Decision* each : d.decisions)
        if (!each->producer_nodes.empty())
          one["nodes"].push_back({{"producer", loop::nodes_of(each->producer_nodes)},
                                  {"consumer", loop::nodes_of(each->consumer_nodes)}});
      json["decisions"].push_back(std::move(one));
    }
    for (const Pair& pair : pairs)
      json["separate"].push_back({{"producer", pair.producer},
                                  {"producer_nodes", pair.producer_nodes},
                                  {"consumer", pair.consumer},
                                  {"consumer_nodes", pair.consumer_nodes},
                                  {"reasons", pair.reasons},
                                  {"typical_bytes", pair.bytes},
                                  {"times", pair.times}});
    for (const Choice& choice : kernels) json["kernels"].push_back(to_json(choice));
    json["refused"] = refused_json(made);
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  if (const auto sizes = typical_sizes(program); !sizes.empty())
    std::printf(
        " sizes     bytes and cycles are at typical sizes, the middle of each range but %s at most: %s\n",
        cat(schedule::kTypicalSize).c_str(),
        join(sizes, ", ", [](const auto& size) { return cat(size.first, "=", size.second); }).c_str());
  uint64_t saved = 0;
  for (const Counted& d : counted(others)) {
    if (d->fused) saved += typical_bytes(*d.decisions.front(), program.facts) * d.times();
    print(d, program.facts);
  }
  for (const Pair& pair : pairs) print(pair);
  if (saved > 0)
    std::printf(" fusion saves %s of memory traffic in a run at typical sizes\n", human_bytes(saved).c_str());
  for (const Choice& choice : kernels) print(choice);
  for (const tune::Tuned* kernel : made.refused())
    std::printf(" refused   %s, for %s: %s\n", kernel->entry.kernel.c_str(), kernel->entry.key.target.c_str(),
                kernel->refused.c_str());
  return 0;
}

}  // namespace stridec::cli
