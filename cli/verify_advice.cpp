#include "cli/verify_advice.h"

#include <nlohmann/json.hpp>

#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/package/read_manifest.h"
#include "compiler/package/version.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kThisCompiler = "stridec " STRIDEC_VERSION;

// The extensions that the artifact was compiled with, as its manifest names them.
std::vector<std::string> extensions_of(const Library& artifact, const std::string& path) {
  std::vector<std::string> names;
  const Json whole = package::read_manifest(artifact.manifest(), path),
             extensions = whole.value("extensions", Json::object());
  for (const auto& [kind, list] : extensions.items())
    for (const Json& each : list)
      for (const char* key : {"file", "command"})
        if (each.contains(key)) names.push_back(each[key]);
  return names;
}

std::string tolerance_advice(const std::string& within) {
  return cat("the default tolerance, ", within, ", allows this: leave --tolerance out");
}

// What helps if no node of this build's code differs.
std::string advice(const CausedBy& of) {
  if (!of.within.empty()) return tolerance_advice(of.within);
  if (!of.expected.empty()) return cat("look at the expected values, ", join(of.expected, ", "));
  if (!of.library) return "";
  if (const std::string why = remedy(of.origin, ""); !why.empty()) return why;
  if (const auto extensions = extensions_of(*of.library, of.artifact); !extensions.empty())
    return cat("the artifact was compiled with extensions, ", join(extensions, ", "),
               "; look at what they change, or give the same ones to this command");
  const std::string mode = package::read_manifest(of.library->manifest(), of.artifact).value("mode", of.mode);
  if (mode != of.mode)
    return cat("the artifact has the schedules of --mode ", mode, ": give this flag to look at such ones");
  return cat(kThisCompiler,
             " compiled both: unless another build of it made the artifact, compiling it again "
             "changes nothing, and this is a defect to report");
}

}  // namespace

Origin origin_of(const Library& artifact, const std::string& path, const std::string& command_model,
                 const std::string& sha256) {
  Origin out;
  const Json model = artifact.function_manifest()["model"],
             whole = package::read_manifest(artifact.manifest(), path);
  if (const std::string hash = model.value("sha256", ""); !hash.empty() && hash != sha256)
    out.model =
        cat("'", path, "' was compiled from '", printable(model.value("file", "")), "' (sha256 ",
            hash.substr(0, 12), "), not from '", command_model, "' (sha256 ", sha256.substr(0, 12), ")");
  const std::string compiler =
                        cat(whole.value("compiler", ""), ", manifest ", whole.value("schema_version", "")),
                    own = cat(kThisCompiler, ", manifest ", package::kManifestVersion);
  if (compiler != own)
    out.compiler = cat("'", path, "' was compiled by ", printable(compiler), "; this is ", own);
  return out;
}

std::string remedy(const Origin& origin, const std::string& same) {
  if (!origin.model.empty()) return cat(origin.model, ": give that model, or compile this one");
  if (!origin.compiler.empty()) return cat(origin.compiler, ": compile it again");
  return same;
}

std::string cause_text(const CausedBy& of, const std::optional<FirstDifference>& first) {
  if (first) {
    const std::string help = !of.within.empty() ? tolerance_advice(of.within) : remedy(of.origin, "");
    return cat("; first difference at ", first->text, help.empty() ? "" : "; ", help);
  }
  const bool gpu = of.library && of.library->device().type == STRIDEC_DEVICE_CUDA;
  const std::string help = gpu ? remedy(of.origin, "") : advice(of);
  return cat("; ",
             !of.library ? "the interpreter agrees with the compiled code"
             : gpu       ? "this build's code for a CPU agrees with the interpreter"
                         : "this build's own code agrees with the interpreter",
             help.empty() ? "" : ": ", help);
}

}  // namespace stridec::cli
