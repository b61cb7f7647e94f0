#include "compiler/schedule/heuristics/explain.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/heuristics/candidates.h"

namespace stridec::schedule {
namespace {

Choice explain_one(const loop::Program& program, loop::NestId id, const CpuTarget& target,
                   const Chosen& chosen) {
  const loop::Nest& nest = program[id];
  const std::vector<Candidate> space = candidates(program, nest, target);
  const auto found = chosen.find(id);
  Choice choice{.nests = {},
                .schedule = found != chosen.end() ? found->second : default_schedule(program, nest, target),
                .given = found != chosen.end(),
                .space = space.size()};
  std::string own;
  for (const Candidate& candidate : space)
    if (candidate.schedule == choice.schedule) own = candidate.family, choice.cycles = candidate.cycles;
  for (const Candidate& candidate : space) {
    if (candidate.family == own) continue;
    auto& others = choice.others;
    const auto same = std::find_if(others.begin(), others.end(), [&](const Choice::Other& other) {
      return other.family == candidate.family;
    });
    if (same == others.end())
      others.push_back({candidate.family, candidate.cycles});
    else
      same->cycles = std::min(same->cycles, candidate.cycles);
  }
  std::sort(choice.others.begin(), choice.others.end(), [](const Choice::Other& x, const Choice::Other& y) {
    return x.cycles != y.cycles ? x.cycles < y.cycles : x.family < y.family;
  });
  return choice;
}

}  // namespace

std::vector<Choice> explain(const loop::Program& program, const CpuTarget& target, const Chosen& chosen) {
  std::vector<Choice> choices;
  std::map<std::string, size_t> known;
  const std::set<loop::NestId> parts = loop::launched_in_groups(program);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    const loop::Nest& nest = program[launch->nest];
    std::string text = nest.name + "\n" + loop::canonical_text(program, nest);
    for (const loop::BufferId id : loop::buffers_of(nest))
      text += program[id].storage == loop::Storage::kParameter ? 'w' : '.';
    const auto [found, fresh] = known.emplace(std::move(text), choices.size());
    if (fresh) {
      choices.push_back(explain_one(program, launch->nest, target, chosen));
      choices.back().in_tiled_group = parts.contains(launch->nest);
    }
    choices[found->second].nests.push_back(launch->nest);
  });
  return choices;
}

}  // namespace stridec::schedule
