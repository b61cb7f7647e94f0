// Collects what the manifest states in addition to the loop programs: flags, variants, hashes, tuning.
#pragma once

#include <map>
#include <string>

#include "compiler/compilation.h"

namespace stridec {

// Text by key that the artifact carries: the caller's, and what the models' files have. The caller's comes
// before that of a model, and a model's before those of later functions.
std::map<std::string, std::string> metadata_of(const CompileOptions& options, const Compilation& made);

// `hashes`: of the functions' model files.
package::ManifestFacts manifest_facts(const CompileOptions& options, const Compilation& made,
                                      const std::vector<std::string>& hashes);

}  // namespace stridec
