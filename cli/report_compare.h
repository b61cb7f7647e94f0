// What became of the same nodes of a model in two reports.
#pragma once

#include <nlohmann/json.hpp>

namespace stridec::cli {

// For each function that both reports have: the nodes whose fate, kernel (by the nodes that share it) or
// schedule differ, joined on the nodes, in the order of `here`; then those that only `there` has. Functions
// are joined by name, or where each report has one. Throws nlohmann's exceptions where `there` is no report.
nlohmann::ordered_json compare_reports(const nlohmann::ordered_json& here,
                                       const nlohmann::ordered_json& there);

}  // namespace stridec::cli
