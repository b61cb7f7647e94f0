// export: writes a model file with the weights that a training reached.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/parameter_file.h"
#include "cli/trained_weights.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/mapped_file.h"
#include "compiler/frontend/onnx/weight_editor.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExportFlags {
  std::string model, state, output, weights;
  bool without_averages = false;
};

// PyTorch's formats are zip archives.
void refuse_archive(const std::string& path) {
  const auto file = onnx::map_file(path);
  const std::string_view start(reinterpret_cast<const char*>(file->bytes.data()),
                               std::min<size_t>(file->bytes.size(), 4));
  if (start == "PK\x03\x04")
    fail(ErrorKind::kUnsupported, "not-onnx",
         cat("'", path, "' is a file of PyTorch, and export writes ONNX files"),
         "load the saved weights in PyTorch: "
         "module.load_state_dict(safetensors.torch.load_file('run.safetensors'), strict=False)");
}

onnx::DataPlace place_of(const std::string& weights) {
  if (weights == "embed") return onnx::DataPlace::kEmbedded;
  return weights == "external" ? onnx::DataPlace::kExternal : onnx::DataPlace::kAsBefore;
}

void report(const ExportFlags& flags, const TrainedWeights& trained, const std::string& data,
            const Globals& globals) {
  if (globals.json) {
    Json json = {{"model", flags.output},          {"data", data},
                 {"replaced", Json::array()},      {"averages", trained.averages},
                 {"converted", trained.converted}, {"skipped", trained.skipped}};
    for (const auto& [name, bytes] : trained.values) json["replaced"].push_back(name);
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  if (globals.quiet) return;
  std::printf("%s  %zu weights replaced", flags.output.c_str(), trained.values.size());
  if (trained.averages > 0) std::printf(", %zu of them by moving averages", trained.averages);
  if (trained.skipped > 0) std::printf("; %zu states of the training skipped", trained.skipped);
  if (!data.empty()) std::printf("; data in %s", data.c_str());
  std::printf("\n");
  constexpr size_t kShown = 3;
  if (const size_t count = trained.converted.size(); count > 0)
    note(cat(count, " tensors were converted: ",
             join(std::vector<std::string>(
                      trained.converted.begin(),
                      trained.converted.begin() + static_cast<std::ptrdiff_t>(std::min(count, kShown))),
                  ", "),
             count > kShown ? ", ..." : ""),
         globals);
}

int run(const ExportFlags& flags, const Globals& globals) {
  refuse_archive(flags.model);
  onnx::WeightEditor editor(flags.model);
  const ParameterFile state = read_parameters(flags.state);
  TrainedWeights trained;
  try {
    trained = match_weights(state, editor.weights(), !flags.without_averages);
  } catch (Error& error) {
    error.diagnostic.where.file = flags.state;
    throw;
  }
  for (const auto& [name, bytes] : trained.values) editor.replace(name, bytes);
  const std::string data = editor.write(flags.output, place_of(flags.weights));
  report(flags, trained, data, globals);
  return 0;
}

}  // namespace

std::function<int()> declare_export(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<ExportFlags>();
  app.add_option("model", flags->model, "the ONNX model that was trained")->required()->type_name("MODEL");
  app.add_option("--state", flags->state,
                 "the trained weights by name: a .safetensors file of 'stridec train --save', or any other")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", flags->output, "the ONNX model to write")->required()->type_name("FILE");
  app.add_option("--weights", flags->weights,
                 "embed the tensors, or external: in OUTPUT.data beside it (default: as in the model)")
      ->check(CLI::IsMember({"embed", "external"}));
  app.add_flag("--without-averages", flags->without_averages,
               "the weights themselves, if the training kept moving averages (ema), which 'predict' uses");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
