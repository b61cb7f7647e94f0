#include "cli/profile_rows.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/provenance.h"

namespace stridec::cli {
namespace {

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

std::string common_scope(const std::vector<std::string>& nodes) {
  if (nodes.empty()) return "";
  std::string scope = scope_of(nodes.front());
  for (const std::string& node : nodes) {
    const std::string other = scope_of(node) + "/";
    while (!scope.empty() && !other.starts_with(scope + "/")) {
      const size_t slash = scope.rfind('/');
      scope.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return scope;
}

std::string name_of(const StepFacts& facts, int step, Group group) {
  switch (group) {
    case Group::kKernel: return facts.kernel;
    case Group::kStep: return cat(step, " ", facts.kernel);
    case Group::kNode:
      return facts.nodes.empty() ? cat("no node: ", facts.kernel) : loop::nodes_of(facts.nodes);
    case Group::kScope: break;
  }
  const std::string scope = common_scope(facts.nodes);
  return scope.empty() ? "(no scope)" : scope;
}

}  // namespace

std::string scope_of(const std::string& node) {
  const size_t begin = node.find('\''), end = node.rfind('\'');
  if (begin == std::string::npos || end <= begin) return "";
  const std::string name = node.substr(begin + 1, end - begin - 1);
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

int64_t ProfileRow::percentile(double share) const {
  if (calls.empty()) return 0;
  return calls[std::min(calls.size() - 1, static_cast<size_t>(share * static_cast<double>(calls.size())))];
}

std::vector<ProfileRow> profile_rows(const Samples& samples, const std::map<int, StepFacts>& steps,
                                     const std::vector<std::string>& names, Group group, const Roof& roof) {
  std::vector<ProfileRow> rows;
  // Kernels of one name may have several schedules; nodes with one short text may be different ones.
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const auto& [step, calls] : samples.of_steps) {
    const std::string name = step < static_cast<int>(names.size()) ? names[static_cast<size_t>(step)] : "";
    const auto found = steps.find(step);
    // Another variant than the manifest's may have other steps.
    const StepFacts facts =
        found != steps.end() && found->second.kernel == name ? found->second : StepFacts{.kernel = name};
    const std::string apart = group == Group::kKernel ? facts.schedule
                              : group == Group::kNode ? join(facts.nodes, "\n")
                                                      : "";
    const auto [place, fresh] = known.emplace(std::pair(name_of(facts, step, group), apart), rows.size());
    if (fresh) rows.push_back({.name = place->first.first});
    ProfileRow& row = rows[place->second];
    const auto count = static_cast<double>(calls.size());
    const Roof::Level level = roof.level_of(facts.bytes);
    row.total += sum(calls);
    row.steps.push_back(step);
    row.calls.insert(row.calls.end(), calls.begin(), calls.end());
    row.nodes.insert(row.nodes.end(), facts.nodes.begin(), facts.nodes.end());
    row.flops += facts.flops * count;
    row.bytes += facts.bytes * count;
    row.compute += facts.flops * count / roof.flops_of(facts.schedule);
    row.moving += facts.bytes * count / level.rate;
    row.level = level.name;
  }
  rows.push_back({.name = "between kernels", .total = sum(samples.between), .calls = samples.between});
  for (ProfileRow& row : rows) {
    std::sort(row.calls.begin(), row.calls.end());
    loop::sort_nodes(row.nodes);
  }
  return rows;
}

}  // namespace stridec::cli
