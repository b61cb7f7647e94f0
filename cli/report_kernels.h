// The kernels of a compilation for the report: costs, loops before and after fusion, sources, schedules with
// their other candidates, tuning, and why neighbours are kernels of their own.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/compilation.h"

namespace stridec::cli {

// `schedule`: schedule_json() of the function. `sources`: with loops and the source of each kernel.
nlohmann::ordered_json report_kernels(const Compilation& made, size_t function,
                                      const nlohmann::ordered_json& schedule, bool sources);

}  // namespace stridec::cli
