// Collects what the manifest states in addition to the loop programs: flags, variants, hashes, tuning.
#pragma once

#include "compiler/compilation.h"

namespace stridec {

// `hashes`: of the functions' model files.
package::ManifestFacts manifest_facts(const CompileOptions& options, const Compilation& made,
                                      const std::vector<std::string>& hashes);

}  // namespace stridec
