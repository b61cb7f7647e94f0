// Reads and validates manifests that others may have written or changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stridec::package {

// Returns the manifest as JSON in which every value has the type that schemas/manifest.schema.json declares
// and every required key exists, so readers need no further checks. Unknown keys are dropped (newer minor
// versions add some). String patterns are not checked. Throws a kMalformed Error with `file` and the first
// problem.
nlohmann::ordered_json read_manifest(std::string_view text, const std::string& file);

}  // namespace stridec::package
