// What `verify` leaves of a difference: a folder with the smallest model that differs, its inputs, and JSON
// that says what differs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/first_difference.h"

namespace stridec::cli {

// {"node", "op", "output", "type", "element", "expected", "got", "error", "inputs"}: the first operation that
// differs, with the types that its operands have.
nlohmann::ordered_json difference_json(const graph::Graph& graph, const FirstDifference& found);

// The paths of the files that may be written to the folder.
std::vector<std::string> repro_files(const std::string& folder);

// Writes model.graph, inputs.npz, expected.npz and repro.json to the folder. Returns what repro.json says:
// `difference`, "nodes" and "command", which verifies the model again.
nlohmann::ordered_json write_repro(const std::string& folder, const DifferenceSearch& search,
                                   const FirstDifference& found, const CompileFlags& flags);

// Of an artifact alone, while this build's code agrees with the interpreter: inputs.npz and repro.json.
nlohmann::ordered_json write_repro(const std::string& folder, const std::string& artifact,
                                   const std::vector<std::string>& names, const Tensors& inputs,
                                   const CompileFlags& flags);

}  // namespace stridec::cli
