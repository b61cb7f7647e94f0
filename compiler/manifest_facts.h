// Collects what the manifest states in addition to the loop program: flags, variants, hashes, tuning.
#pragma once

#include "compiler/base/file_hash.h"
#include "compiler/compilation.h"

namespace stridec {

package::ManifestFacts manifest_facts(const CompileOptions& options, const Compilation& made,
                                      const FileHash& model);

}  // namespace stridec
