// What `--target`, `--cpu` and `--gpu` ask for.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/target.h"

namespace stridec {

// Each list without repeats, best first: the order in which the runtime tries them.
struct Targets {
  std::vector<CpuTarget> cpus;
  std::vector<GpuTarget> gpus;
};

// `targets` names "cpu" and "cuda"; no name of a CPU means the one at hand, no name of a GPU the common ones. Throws
// Error (kUsage) for unknown names and for no target at all.
Targets select_targets(const std::vector<std::string>& targets, const std::vector<std::string>& cpus,
                       const std::vector<std::string>& gpus);

}  // namespace stridec
