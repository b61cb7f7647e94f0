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
#include "compiler/loop/walk.h"
#include "compiler/schedule/typical.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using schedule::Choice;
using schedule::Decision;

struct Counted {
  const Decision* decision;
  int times = 1;
};

std::vector<Counted> counted(const std::vector<Decision>& decisions) {
  std::vector<Counted> all;
  std::map<std::tuple<std::string, std::string, bool, std::string, std::string>, size_t> known;
  for (const Decision& d : decisions) {
    const auto [found, fresh] = known.emplace(
        std::tuple(d.producer, d.consumer, d.fused, d.reason, sym::to_string(d.bytes)), all.size());
    if (fresh)
      all.push_back({&d});
    else
      ++all[found->second].times;
  }
  return all;
}

uint64_t typical_bytes(const Decision& decision, const sym::Facts& facts) {
  return static_cast<uint64_t>(std::max(0.0, schedule::typical(decision.bytes, facts)));
}

std::string times(int count) { return count > 1 ? cat(" (", count, " times)") : ""; }

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
  std::printf(" kernel    %s%s: %s\n", choice.nests.front().c_str(),
              times(static_cast<int>(choice.nests.size())).c_str(), loop::to_string(choice.schedule).c_str());
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

}  // namespace

int print_schedule(const Compilation& made, const Globals& globals) {
  const loop::Program& program = *made.programs().front();
  const std::vector<Choice> kernels = made.gpu_variants.empty() ? made.choices : launches(made);
  if (globals.json) {
    Json json = {{"stage", "schedule"}, {"decisions", Json::array()}, {"kernels", Json::array()}};
    for (const auto& [d, count] : counted(made.decisions)) {
      Json one = {{"producer", d->producer},
                  {"consumer", d->consumer},
                  {"fused", d->fused},
                  {"reason", d->reason},
                  {"times", count}};
      if (!d->bytes.is_const(0)) {
        one["bytes"] = sym::to_string(d->bytes);
        one["typical_bytes"] = typical_bytes(*d, program.facts);
      }
      json["decisions"].push_back(std::move(one));
    }
    for (const Choice& choice : kernels) json["kernels"].push_back(to_json(choice));
    json["refused"] = refused_json(made);
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
  }
  uint64_t saved = 0;
  for (const auto& [d, count] : counted(made.decisions)) {
    const uint64_t bytes = typical_bytes(*d, program.facts);
    if (d->fused) saved += bytes * static_cast<uint64_t>(count);
    std::printf(" %-9s %s -> %s: %s", d->fused ? "fused" : "separate", d->producer.c_str(),
                d->consumer.c_str(), d->reason.c_str());
    if (bytes > 0) std::printf("; %s %s", d->fused ? "saves" : "would save", human_bytes(bytes).c_str());
    std::printf("%s\n", times(count).c_str());
  }
  if (saved > 0)
    std::printf(" fusion saves %s of memory traffic in a run at typical sizes\n", human_bytes(saved).c_str());
  for (const Choice& choice : kernels) print(choice);
  for (const tune::Tuned* kernel : made.refused())
    std::printf(" refused   %s, for %s: %s\n", kernel->entry.kernel.c_str(), kernel->entry.key.target.c_str(),
                kernel->refused.c_str());
  return 0;
}

}  // namespace stridec::cli
