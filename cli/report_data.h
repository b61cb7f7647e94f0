// What `report` shows, as data: the same for a compilation and, as far as its data allow, for a manifest.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "compiler/compilation.h"

namespace stridec::cli {

// {"schema_version", "title"}: the start of a report, to which "functions" belong. `title`: the name of a
// file, or "".
nlohmann::ordered_json report_head(const std::string& title);
// The report as text, with a newline at the end: the contents of report.json.
std::string report_text(const nlohmann::ordered_json& report);

// Of one function. Bytes and offsets are at typical sizes, which are listed. `sources`: with loops and the
// source of each kernel. {"name", "model", "sizes", "symbols", "first", "nodes", "kernels", "memory",
// "drawing", "roofline"}
nlohmann::ordered_json report_of(const Compilation& made, size_t function, bool sources);
// `function`: the manifest, or one of its functions: no loops, no buffers, no drawing, no cost model.
nlohmann::ordered_json report_of(const nlohmann::ordered_json& function);

}  // namespace stridec::cli
