// The report as one page of HTML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace stridec::cli {

// {"schema_version", "title", "functions"} as one page of HTML, with a script of its own and no requests.
std::string report_page(const nlohmann::ordered_json& report);

}  // namespace stridec::cli
