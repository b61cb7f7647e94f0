// Parses `--target`, `--cpu` and `--gpu`.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"

namespace stridec {

// Lists without duplicates, best first: the order in which the runtime tries them.
struct Targets {
  std::vector<CpuTarget> cpus;
  std::vector<GpuTarget> gpus;
};

// `targets` contains "cpu" and "cuda". An empty list of CPUs selects the CPU of this machine, an empty list
// of GPUs the common ones. Throws Error (kUsage) for unknown names and for an empty list of targets.
Targets select_targets(const std::vector<std::string>& targets, const std::vector<std::string>& cpus,
                       const std::vector<std::string>& gpus);

}  // namespace stridec
