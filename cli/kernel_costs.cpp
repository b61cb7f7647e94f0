#include "cli/kernel_costs.h"

#include <algorithm>

#include "compiler/base/gpu_target.h"
#include "compiler/base/parallel.h"
#include "compiler/base/target.h"
#include "compiler/sym/text.h"
#include "compiler/tune/gpu_device.h"

namespace stridec::cli {

using Json = nlohmann::ordered_json;

Roof roof_of(Library& library) {
  if (tune::GpuDevice* gpu = library.gpu()) {
    const tune::GpuDevice::Peaks peaks = gpu->measure_peaks(gpu_target(library.variant()));
    return {.flops_of = [peaks](std::string_view schedule) { return peaks.flops_of(schedule); },
            .level_of = [peaks](double) -> Roof::Level { return {"memory", peaks.memory}; },
            .json = {{"flops_per_second", peaks.scalar},
                     {"tensor_flops_per_second", peaks.tensor},
                     {"memory_bytes_per_second", peaks.memory}}};
  }
  const CpuTarget& target = cpu_target(library.variant());
  // Threads that share a processor have the rate of one together.
  const int threads = std::min(library.threads(), processors());
  const tune::Peaks peaks = tune::measure_peaks(target, threads);
  return {
      .flops_of = [peaks](std::string_view schedule) { return peaks.flops_of(schedule); },
      .level_of = [peaks, &target, threads](double bytes) { return peaks.level_of(bytes, target, threads); },
      .json = {{"flops_per_second", peaks.flops},
               {"l1_bytes_per_second", peaks.l1},
               {"l2_bytes_per_second", peaks.l2},
               {"l3_bytes_per_second", peaks.l3},
               {"memory_bytes_per_second", peaks.memory}}};
}

Json all_kernels(const Json& function) {
  Json kernels = function["kernels"];
  for (const Json& special : function.value("specializations", Json::array()))
    for (const Json& kernel : special.at("kernels")) kernels.push_back(kernel);
  return kernels;
}

double evaluate(const Json& kernel, const char* key, const Sizes& sizes) {
  const auto value =
      sym::evaluate(sym::parse(kernel[key].get<std::string>()), [&](sym::Expr v) -> std::optional<int64_t> {
        const auto found = sizes.find(v.name());
        return found == sizes.end() ? 1 : found->second;
      });
  return static_cast<double>(value.value_or(0));
}

std::map<int, StepFacts> steps_of(const Json& function, const Sizes& sizes) {
  std::map<int, StepFacts> steps;
  const Json none = Json::array();
  for (const Json& kernel : all_kernels(function)) {
    const StepFacts whole{.kernel = kernel["name"],
                          .schedule = kernel["schedule"],
                          .nodes = kernel["nodes"],
                          .flops = evaluate(kernel, "flops", sizes),
                          .bytes = evaluate(kernel, "bytes", sizes)};
    const Json launches = kernel.value("launch_nodes", none);
    for (size_t i = 0; i < kernel["steps"].size(); ++i) {
      StepFacts& step = steps[kernel["steps"][i].get<int>()] = whole;
      if (i >= launches.size()) continue;
      step.nodes.clear();
      for (const Json& at : launches[i])
        if (at.get<size_t>() < whole.nodes.size()) step.nodes.push_back(whole.nodes[at.get<size_t>()]);
    }
  }
  const auto nodes = function.find("nodes");
  if (nodes == function.end()) return steps;
  for (const Json& group : (*nodes)["without_kernel"])
    for (const Json& step : group.value("steps", none))
      steps[step.get<int>()] = {.kernel = group["by"], .schedule = {}, .nodes = group["nodes"]};
  for (const Json& routine : function.value("routines", none)) {
    StepFacts& step = steps[routine["step"].get<int>()];
    step.kernel = routine["name"], step.nodes = routine["nodes"];
    step.flops = evaluate(routine, "flops", sizes), step.bytes = evaluate(routine, "bytes", sizes);
  }
  return steps;
}

}  // namespace stridec::cli
