// Says what a compilation took from measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler/compilation.h"

namespace stridec::cli {

// The tuned kernels of all variants of all functions.
std::vector<const tune::Tuned*> tuned_of(const Compilation& made);

// "9 kernels: 5 measured in 12.3 s, 3 from the database, 1 keeps its default; 1.32 times as fast as the
// defaults, 'gemm+relu' 1.74 times; database /home/u/.cache/stridec/tuning.txt". "" if nothing was looked up.
std::string tuning_text(const Compilation& made, double seconds, const std::string& database);

// {"measured": 5, "from_database": 3, "default": 1, "speedup": 1.32, "seconds": 12.3}; null like "".
nlohmann::ordered_json tuning_json(const Compilation& made, double seconds);

}  // namespace stridec::cli
