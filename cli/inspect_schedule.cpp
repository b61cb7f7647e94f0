#include "cli/inspect_schedule.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/node_work.h"
#include "cli/refused.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/provenance.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/explain_unfused.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using loop::Kernel;
using loop::KernelRow;
using schedule::Choice;
using schedule::Decision;

struct Counted {
  std::vector<const Decision*> decisions;  // equal except for their nodes
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

uint64_t typical_bytes(sym::Expr bytes, const sym::Facts& facts) {
  return static_cast<uint64_t>(std::max(0.0, schedule::typical(bytes, facts)));
}

// Pairs of kernels that were not fused, grouped if they are equal, as in equal layers.
struct Pair {
  std::string producer, consumer, producer_nodes, consumer_nodes;  // of the first pair
  std::vector<std::string> reasons;
  uint64_t bytes = 0;
  size_t times = 0;
};

std::vector<Pair> separate_pairs(const loop::Program& program, const std::vector<Kernel>& kernels,
                                 const std::vector<Decision>& decisions) {
  std::vector<Pair> pairs;
  std::map<std::tuple<std::string, std::string, std::vector<std::string>, uint64_t>, size_t> known;
  for (const schedule::Unfused& one : schedule::explain_unfused(program, kernels, decisions)) {
    uint64_t bytes = 0;
    for (const sym::Expr each : one.bytes) bytes = std::max(bytes, typical_bytes(each, program.facts));
    const auto [found, fresh] =
        known.emplace(std::tuple(one.producer->name, one.consumer->name, one.reasons, bytes), pairs.size());
    if (fresh)
      pairs.push_back({one.producer->name, one.consumer->name, loop::nodes_of(one.producer->nodes),
                       loop::nodes_of(one.consumer->nodes), one.reasons, bytes});
    ++pairs[found->second].times;
  }
  return pairs;
}

// Decisions that concern no pair of kernels: what was fused, and what is not about two nests.
std::vector<const Decision*> others_of(const std::vector<Decision>& decisions) {
  std::vector<const Decision*> others;
  for (const Decision& d : decisions)
    if (d.fused || d.apart || d.producer_nodes.empty() || d.consumer_nodes.empty()) others.push_back(&d);
  return others;
}

std::string times(size_t count) { return count > 1 ? cat(" (", count, " times)") : ""; }

std::string ratio(double of, double to) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", of / std::max(to, 1.0));
  return text;
}

// Why each nest has its schedule. On a GPU most are set by rules, so their candidates have no costs to
// compare.
using Choices = std::map<loop::NestId, Choice>;

Choices choices_of(const FunctionResult& made, const std::vector<Kernel>& kernels) {
  Choices all;
  for (const Choice& choice : made.choices)
    for (const loop::NestId nest : choice.nests) all[nest] = choice;
  if (made.gpu_variants.empty()) return all;
  all.clear();
  for (const Kernel& kernel : kernels)
    for (const loop::NestId nest : kernel.nests)
      all[nest].schedule = made.gpu_variants.front().program[nest].schedule;
  if (!made.tuned.empty())
    for (const tune::Tuned& kernel : made.tuned.front())
      if (kernel.origin != tune::Tuned::Origin::kDefault)
        for (const loop::NestId nest : kernel.nests) all[nest].given = true;
  return all;
}

Json json_of_nest(const loop::Nest& nest, const Choice& choice) {
  Json json = {{"name", nest.name},
               {"schedule", loop::to_string(choice.schedule)},
               {"chosen_by", choice.given ? "measuring" : "model"},
               {"expected_cycles", choice.cycles},
               {"candidates", choice.space},
               {"others", Json::array()}};
  for (const Choice::Other& other : choice.others)
    json["others"].push_back({{"family", other.family}, {"expected_cycles", other.cycles}});
  return json;
}

Json json_of_kernel(const loop::Program& program, const KernelRow& row, const Choices& choices) {
  Json json = {{"name", row.first().name},
               {"launches", row.launches.size()},
               {"steps", Json::array()},
               {"schedule", row.first().schedule},
               {"in_tiled_group", row.first().strips != nullptr},
               {"nodes", row.nodes},
               {"work", work_json(program, row.first())},
               {"nests", Json::array()}};
  for (const Kernel* kernel : row.launches) json["steps"].push_back(kernel->step);
  for (const loop::NestId nest : row.first().nests)
    json["nests"].push_back(json_of_nest(program[nest], choices.at(nest)));
  return json;
}

std::string text_of(const Choice& choice, const char* indent) {
  constexpr size_t kOthers = 4;
  if (choice.space == 0) return "";
  std::string text =
      cat(indent,
          choice.given            ? (choice.cycles > 0 ? "measured best" : "given")
          : choice.in_tiled_group ? "the cost model's choice; parts of tiled groups are not tuned"
                                  : "the cost model's choice",
          "; ", choice.space == 1 ? "the only candidate" : cat("one of ", choice.space, " candidates"));
  // An edited entry: a schedule that applies need not be a candidate.
  if (choice.cycles == 0) return text + "; the schedule in the database is none of these\n";
  char cycles[32];
  std::snprintf(cycles, sizeof(cycles), "%.3g", choice.cycles);
  text += cat(", ", cycles, " core cycles expected");
  const size_t shown = std::min(kOthers, choice.others.size());
  for (size_t i = 0; i < shown; ++i)
    text += cat(i == 0 ? "; others, in multiples of these cycles: " : ", ", choice.others[i].family, " ",
                ratio(choice.others[i].cycles, choice.cycles));
  if (choice.others.size() > shown) text += cat(", ", choice.others.size() - shown, " more");
  return text + "\n";
}

std::string text_of(const loop::Program& program, const KernelRow& row, const Choices& choices) {
  const Kernel& kernel = row.first();
  const std::string what = kernel.strips ? cat(kernel.nests.size(), " nests in strips") : kernel.schedule;
  std::string text = cat(" kernel    ", kernel.name, times(row.launches.size()), ": ", what, "\n");
  if (!row.nodes.empty()) text += cat("           of ", loop::nodes_of(row.nodes), "\n");
  for (const loop::NestId nest : kernel.nests) {
    const Choice& choice = choices.at(nest);
    if (kernel.strips)
      text += cat("           ", program[nest].name, ": ", loop::to_string(choice.schedule), "\n");
    text += text_of(choice, kernel.strips ? "             " : "           ");
  }
  return text;
}

// The sizes for which bytes and cycles are given; empty: the program has no symbols.
std::vector<std::pair<std::string, int64_t>> typical_sizes(const loop::Program& program) {
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (const loop::Symbol& symbol : program.symbols)
    sizes.emplace_back(symbol.var.name(), static_cast<int64_t>(schedule::typical(symbol.var, program.facts)));
  return sizes;
}

std::string text_of(const Pair& pair) {
  const auto of = [](const std::string& nodes) { return nodes.empty() ? "" : " of " + nodes; };
  return cat(" separate  ", pair.producer, of(pair.producer_nodes), " -> ", pair.consumer,
             of(pair.consumer_nodes), ": ",
             pair.reasons.empty() ? "no fusion rule covers such kernels" : join(pair.reasons, "; "),
             pair.bytes > 0 ? cat("; would save ", human_bytes(pair.bytes)) : "", times(pair.times), "\n");
}

std::string text_of(const Counted& counted, const sym::Facts& facts) {
  const Decision& d = *counted.decisions.front();
  const uint64_t bytes = typical_bytes(d.bytes, facts);
  return cat(!d.fused  ? " separate  "
             : d.apart ? " apart     "
                       : " fused     ",
             d.producer, " -> ", d.consumer, ": ", d.reason,
             bytes > 0 ? cat("; ", d.fused ? "saves " : "would save ", human_bytes(bytes)) : "",
             times(counted.times()), "\n");
}

}  // namespace

nlohmann::ordered_json schedule_json(const FunctionResult& made) {
  const loop::Program& program = *made.programs().front();
  const std::vector<Kernel> kernels = loop::kernels_of(program);
  const std::vector<Pair> pairs = separate_pairs(program, kernels, made.decisions);
  const std::vector<KernelRow> rows = loop::rows_of(program, kernels);
  const Choices choices = choices_of(made, kernels);
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
      one["typical_bytes"] = typical_bytes(d->bytes, program.facts);
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
  for (const KernelRow& row : rows) json["kernels"].push_back(json_of_kernel(program, row, choices));
  json["repeated"] = repeated_json(made, kernels);
  json["refused"] = refused_json(made.refused());
  return json;
}

std::string schedule_text(const FunctionResult& made) {
  const loop::Program& program = *made.programs().front();
  const std::vector<Kernel> kernels = loop::kernels_of(program);
  const std::vector<Pair> pairs = separate_pairs(program, kernels, made.decisions);
  const std::vector<KernelRow> rows = loop::rows_of(program, kernels);
  const Choices choices = choices_of(made, kernels);
  std::string text;
  if (const auto sizes = typical_sizes(program); !sizes.empty())
    text = cat(" sizes     bytes and cycles are at typical sizes, the middle of each range but ",
               schedule::kTypicalSize, " at most: ",
               join(sizes, ", ", [](const auto& size) { return cat(size.first, "=", size.second); }), "\n");
  uint64_t saved = 0;
  for (const Counted& d : counted(others_of(made.decisions))) {
    if (d->fused) saved += typical_bytes(d->bytes, program.facts) * d.times();
    text += text_of(d, program.facts);
  }
  for (const Pair& pair : pairs) text += text_of(pair);
  if (saved > 0)
    text += cat(" fusion saves ", human_bytes(saved), " of memory traffic in a run at typical sizes\n");
  for (const KernelRow& row : rows) text += text_of(program, row, choices);
  text += repeated_text(made, kernels);
  for (const tune::Tuned* kernel : made.refused())
    text += cat(" refused   ", kernel->entry.kernel, ", for ", kernel->entry.key.target, ": ",
                kernel->refused, "\n");
  return text;
}

}  // namespace stridec::cli
