#include "cli/version.h"

#include "compiler/base/text.h"
#include "compiler/package/version.h"
#include "runtime/include/stridec/abi.h"
#include "runtime/include/stridec/runtime.h"

// Of the source tree, as git names it: written by the build (cli/revision.cmake).
extern "C" const char* const stridec_revision;

namespace stridec::cli {

std::string version_text() {
  return cat("stridec " STRIDEC_VERSION "\nrevision ", stridec_revision,
             ", LLVM " STRIDEC_LLVM_VERSION ", ONNX " STRIDEC_ONNX_VERSION "\nC API ", STRIDEC_API_VERSION,
             ", artifact format ", STRIDEC_ABI_VERSION, ", manifest ", package::kManifestVersion);
}

}  // namespace stridec::cli
