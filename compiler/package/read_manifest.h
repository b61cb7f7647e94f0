// Manifests that others may have written or changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stridec::package {

// The manifest as JSON in which everything is of the type that schemas/manifest.schema.json gives it, and what that requires
// is there: readers need not ask again. Keys that the schema does not know are dropped (a newer minor version adds some),
// patterns of strings are not compared. Throws a kMalformed Error that names `file` and what is wrong first.
nlohmann::ordered_json read_manifest(std::string_view text, const std::string& file);

}  // namespace stridec::package
