// refit: writes a copy of an artifact with other values of its replaceable parameters.
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/parameter_file.h"
#include "cli/parameters.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/package/artifact.h"
#include "compiler/package/elf.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RefitFlags {
  std::string artifact, parameters, output;
  bool partial = false;
};

int refit(const RefitFlags& flags, const Globals& globals) {
  std::string file = read_file(flags.artifact);
  package::ArtifactLayout layout;
  try {
    layout = package::artifact_layout(file);
  } catch (Error& error) {
    error.diagnostic.where.file = flags.artifact;
    throw;
  }
  if (!layout.weights_bytes)
    fail(ErrorKind::kUnsupported, "external-weights",
         cat("'", flags.artifact, "' has its weights in a file of their own, or has none"),
         "compile it with --weights embed");
  const ParameterFile given = read_parameters(flags.parameters);
  ParameterWriter writer(flags.artifact);
  const std::vector<std::string> unused = writer.write(given, flags.partial);
  const ParameterWriter::Section section = writer.section();
  package::replace_weights(file, layout, section.offset, section.bytes);

  const std::string manifest = package::manifest_path(flags.output);
  check_replaceable(flags.output);
  check_replaceable(manifest);
  UnfinishedFile library(flags.output), text(manifest);
  library.write(file.data(), file.size());
  text.write(file.data() + layout.manifest_offset, layout.manifest_bytes);
  std::filesystem::permissions(library.temporary(), std::filesystem::status(flags.artifact).permissions());
  library.commit();
  text.commit();
  if (globals.json) {
    const Json json = {{"artifact", flags.output}, {"replaced", writer.written()}, {"unused", unused}};
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  std::printf("%s  %zu of %zu parameters replaced\n", flags.output.c_str(), writer.written().size(),
              writer.count());
  if (!unused.empty())
    note(cat("the file has ", unused.size(), " tensors that are no parameters of the artifact: ",
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
  app.add_option("-o,--output", flags->output, "the library to write; the manifest goes beside it")
      ->required()
      ->type_name("FILE");
  return [flags, &globals] { return refit(*flags, globals); };
}

}  // namespace stridec::cli
