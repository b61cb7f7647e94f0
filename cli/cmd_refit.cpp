// refit: writes a copy of an artifact with other values of its replaceable parameters.
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/artifact_file.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/parameter_file.h"
#include "cli/parameters.h"
#include "cli/written_files.h"
#include "compiler/base/check.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/package/artifact.h"
#include "compiler/package/elf.h"
#include "compiler/package/read_manifest.h"
#include "runtime/include/stridec/abi.h"
#include "runtime/include/stridec/xxh64.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RefitFlags {
  std::string artifact, parameters, output;
  bool partial = false;
};

// Makes the artifact name the output's file of weights. Returns the contents of that file.
std::string replace_external(const RefitFlags& flags, std::string& file,
                             const package::ArtifactLayout& layout, std::string& manifest,
                             const ParameterWriter::Section& section) {
  Json json = package::read_manifest(manifest, flags.artifact);
  Json& name = json["memory"]["weights_file"];
  STRIDEC_CHECK(name.is_string());  // the artifact has parameters, and no weights of its own
  const std::filesystem::path folder = std::filesystem::path(flags.artifact).parent_path();
  std::string weights = read_file((folder / name.get<std::string>()).string());
  STRIDEC_CHECK(section.offset <= weights.size() && section.bytes.size() <= weights.size() - section.offset);
  weights.replace(section.offset, section.bytes.size(), section.bytes);
  const std::string own = package::weights_name(flags.output);
  if (own.size() >= sizeof stridec_abi_weights_file::name)
    fail(ErrorKind::kUsage, "long-name", cat("'", own, "' is too long for the name of a file"));
  name = own;
  manifest = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  package::replace_weights_file(file, layout, own, stridec_xxh64(weights.data(), weights.size(), 0),
                                manifest);
  return weights;
}

// Fails before the work where a file would replace one that is read. An artifact may be refitted in place.
// `weights`: "" if the library has them.
void check_files(const RefitFlags& flags, const std::string& manifest, const std::string& manifest_file,
                 const std::string& weights) {
  std::vector<std::string> inputs = {flags.parameters};
  std::error_code error;
  if (!std::filesystem::equivalent(flags.artifact, flags.output, error)) {
    const std::vector<std::string> own = files_of_artifact(flags.artifact, manifest);
    inputs.insert(inputs.end(), own.begin(), own.end());
  }
  const std::string help = "choose another name for the library: --output new.so";
  check_outputs({{flags.output, "the library", help},
                 {manifest_file, "the manifest", help},
                 {weights, "the file of weights", help}},
                inputs);
  check_extension(flags.output, "the library", {".so"}, "--output new.so");
}

int refit(const RefitFlags& flags, const Globals& globals) {
  std::string file = read_file(flags.artifact);
  const package::ArtifactLayout layout = layout_of(file, flags.artifact);
  std::string manifest = file.substr(layout.manifest_offset, layout.manifest_bytes), weights;
  const std::filesystem::path folder = std::filesystem::path(flags.output).parent_path();
  const std::string manifest_file = package::manifest_path(flags.output),
                    weights_file = (folder / package::weights_name(flags.output)).string();
  check_files(flags, manifest, manifest_file, layout.weights_bytes ? "" : weights_file);
  const ParameterFile given = read_parameters(flags.parameters);
  ParameterWriter writer(flags.artifact);
  const std::vector<std::string> unused = writer.write(given, flags.partial);
  const ParameterWriter::Section section = writer.section();
  if (layout.weights_bytes)
    package::replace_weights(file, layout, section.offset, section.bytes);
  else
    weights = replace_external(flags, file, layout, manifest, section);

  UnfinishedFile library(flags.output), text(manifest_file);
  std::optional<UnfinishedFile> external;
  if (!layout.weights_bytes) {
    external.emplace(weights_file);
    external->write(weights.data(), weights.size());
  }
  library.write(file.data(), file.size());
  text.write(manifest.data(), manifest.size());
  std::filesystem::permissions(library.temporary(), std::filesystem::status(flags.artifact).permissions());
  if (external) external->commit();
  library.commit();
  text.commit();
  if (globals.json) {
    const Json json = {{"artifact", flags.output}, {"replaced", writer.written()}, {"unused", unused}};
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  std::printf("%s  %zu of %s replaced\n", flags.output.c_str(), writer.written().size(),
              counted(writer.count(), "parameter").c_str());
  if (!unused.empty())
    note(cat("the file has ", counted(unused.size(), "tensor"),
             unused.size() == 1 ? " that is not a parameter" : " that are not parameters",
             " of the artifact: ",
             join(std::vector<std::string>(unused.begin(),
                                           unused.begin() + std::min<size_t>(unused.size(), 5)),
                  ", ", [](const std::string& name) { return name; }),
             unused.size() > 5 ? ", ..." : ""),
         globals);
  return 0;
}

}  // namespace

std::function<int()> declare_refit(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<RefitFlags>();
  app.add_option("artifact", flags->artifact, "an artifact (.so) that was compiled with --refit")
      ->required()
      ->type_name("ARTIFACT");
  app.add_option("--parameters", flags->parameters,
                 "new values by name: a .safetensors file, or an ONNX model whose initializers they are")
      ->required()
      ->type_name("FILE");
  app.add_flag("--partial", flags->partial, "parameters that the file lacks keep their values");
  app.add_option("-o,--output", flags->output, "the library to write; the manifest is written next to it")
      ->required()
      ->type_name("FILE");
  return [flags, &globals] { return refit(*flags, globals); };
}

}  // namespace stridec::cli
