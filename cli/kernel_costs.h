// What kernels cost and what the machine could do, for `bench` and `profile`.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/given_inputs.h"
#include "cli/library.h"
#include "compiler/tune/peak.h"

namespace stridec::cli {

// The peak rates of the machine, against which a kernel's time is compared.
struct Roof {
  using Level = tune::Peaks::Level;

  std::function<double(std::string_view schedule)> flops_of;
  std::function<Level(double bytes)> level_of;  // the level that serves a kernel that moves this many bytes
  nlohmann::ordered_json json;
};
// Measures the peak rates with the library's variant and threads.
Roof roof_of(Library& library);

// The kernels of a function's manifest: those of the general program, then those of specialisations.
nlohmann::ordered_json all_kernels(const nlohmann::ordered_json& function);

// Flops or bytes of a kernel of the manifest at these sizes.
double evaluate(const nlohmann::ordered_json& kernel, const char* key, const Sizes& sizes);

// A launch, or a routine of the library, which has no costs.
struct StepFacts {
  std::string kernel, schedule;
  std::vector<std::string> nodes;  // the model's
  double flops = 0, bytes = 0;
};
// By the step's number in the runtime's profile.
std::map<int, StepFacts> steps_of(const nlohmann::ordered_json& function, const Sizes& sizes);

}  // namespace stridec::cli
