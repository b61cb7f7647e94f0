// Reads and validates manifests that others may have written or changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::package {

// Returns the manifest as JSON in which every value has the type that schemas/manifest.schema.json declares
// and every required key exists, so readers need no further checks. Unknown keys are dropped (newer minor
// versions add some). String patterns are not checked. Throws a kMalformed Error with `file` and the first
// problem.
nlohmann::ordered_json read_manifest(std::string_view text, const std::string& file);

// The functions of an artifact: its manifest, if it is about one, or the entries of `functions`. All have the
// same keys: name, model, inputs, outputs, states, symbols, guards, memory.workspace_bytes, kernels ...
std::vector<nlohmann::ordered_json> functions_of(const nlohmann::ordered_json& manifest);

}  // namespace stridec::package
