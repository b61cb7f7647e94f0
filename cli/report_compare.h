// Compares two reports node by node.
#pragma once

#include <nlohmann/json.hpp>

namespace stridec::cli {

// Lists, for each function of both reports, the nodes that only `here` has or that differ in fate, in the
// nodes that share their kernel, or in schedule, in the order of `here`; then those that only `there` has.
// Functions are matched by name; if each report has only one function, these match. Throws nlohmann's
// exceptions if `there` is not a report.
nlohmann::ordered_json compare_reports(const nlohmann::ordered_json& here,
                                       const nlohmann::ordered_json& there);

}  // namespace stridec::cli
