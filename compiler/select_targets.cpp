#include "compiler/select_targets.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec {
namespace {

// `all` is sorted from weakest to strongest.
template <class Target>
std::vector<Target> best_first(const std::vector<std::string>& names, const Target& (*find)(std::string_view),
                               std::span<const Target> all) {
  std::vector<Target> targets;
  for (const auto& name : names) {
    const Target& target = find(name);
    if (std::none_of(targets.begin(), targets.end(), [&](const Target& t) { return t.name == target.name; }))
      targets.push_back(target);
  }
  auto strength = [&](const Target& target) {
    return std::find_if(all.begin(), all.end(), [&](const Target& t) { return t.name == target.name; }) -
           all.begin();
  };
  std::sort(targets.begin(), targets.end(),
            [&](const Target& a, const Target& b) { return strength(a) > strength(b); });
  return targets;
}

}  // namespace

Targets select_targets(const std::vector<std::string>& targets, const std::vector<std::string>& cpus,
                       const std::vector<std::string>& gpus) {
  Targets out;
  const std::vector<std::string> native = {"native"}, common = {"sm_90a", "sm_80", "ptx"};
  for (const std::string& target : targets) {
    if (target == "cpu")
      out.cpus = best_first(cpus.empty() ? native : cpus, cpu_target, cpu_targets());
    else if (target == "cuda")
      out.gpus = best_first(gpus.empty() ? common : gpus, gpu_target, gpu_targets());
    else
      fail(ErrorKind::kUsage, "unknown-target", cat("there is no target '", target, "'"),
           "use cpu, cuda, or cpu,cuda");
  }
  if (out.cpus.empty() && out.gpus.empty())
    fail(ErrorKind::kUsage, "unknown-target", "there is nothing to compile for",
         "use --target cpu, cuda, or cpu,cuda");
  return out;
}

}  // namespace stridec
