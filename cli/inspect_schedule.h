// `stridec inspect --stage=schedule`: what was fused, what was not and why, and the possible schedules of
// each kernel.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "compiler/compile.h"

namespace stridec::cli {

// Equal fusion decisions share one line with their count. Two kernels that were not fused are one line with
// their nodes and the answer of each rule. Kernels have the names of the manifest. Bytes are for typical
// sizes, which are printed first. JSON lists all decisions, all nodes, and bytes also as expressions.
constexpr size_t kScheduleIndent = 11;  // of print_lines
std::string schedule_text(const FunctionResult& made);
nlohmann::ordered_json schedule_json(const FunctionResult& made);

}  // namespace stridec::cli
