// Which operations of each kernel come from which node, and which nodes are computed more than once, as
// `inspect --stage=schedule` and `report` tell it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/compilation.h"
#include "compiler/loop/kernels.h"

namespace stridec::cli {

// An entry for each node of the kernel: its statements by name, and its operations at typical sizes.
nlohmann::ordered_json work_json(const loop::Program& program, const loop::Kernel& kernel);

// An entry for each node that is computed more often than the model asks for.
nlohmann::ordered_json repeated_json(const FunctionResult& made, const std::vector<loop::Kernel>& kernels);
// A line for each of them.
std::string repeated_text(const FunctionResult& made, const std::vector<loop::Kernel>& kernels);

}  // namespace stridec::cli
