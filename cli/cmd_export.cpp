// export: writes a model file with the weights that a training reached.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/parameter_file.h"
#include "cli/trained_weights.h"
#include "cli/written_files.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/frontend/common/mapped_file.h"
#include "compiler/frontend/onnx/weight_editor.h"
#include "compiler/train/train.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExportFlags {
  std::string model, state, output, weights;
  bool without_averages = false, peft = false;
  std::optional<double> alpha;
};

// Fails before the work where a file would replace one that is read.
void check_files(const ExportFlags& flags, std::vector<std::string> inputs) {
  inputs.push_back(flags.model);
  inputs.push_back(flags.state);
  if (flags.peft) {
    if (!std::filesystem::is_directory(flags.output)) return;  // it is made
    const std::string help = "choose another folder: --output adapters";
    const PeftFiles files = peft_files(flags.output);
    check_outputs({{files.tensors, "the file of adapters", help}, {files.config, "their settings", help}},
                  inputs);
    return;
  }
  const std::string help = "choose another name: --output tuned.onnx";
  check_outputs({{flags.output, "the model", help},
                 {onnx::WeightEditor::data_path(flags.output), "the model's file of data", help}},
                inputs);
  check_extension(flags.output, "the model", {".onnx"}, "--output tuned.onnx");
}

// PyTorch's formats are zip archives.
void refuse_archive(const std::string& path) {
  const auto file = frontend::map_file(path);
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

void report(const ExportFlags& flags, const TrainedWeights& trained, size_t adapters, const std::string& data,
            const Globals& globals) {
  if (globals.json) {
    Json json = {{"model", flags.output},          {"data", data},
                 {"replaced", Json::array()},      {"averages", trained.averages},
                 {"converted", trained.converted}, {"adapters", adapters},
                 {"skipped", trained.skipped}};
    for (const auto& [name, bytes] : trained.values) json["replaced"].push_back(name);
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  if (globals.quiet) return;
  std::printf("%s  %s replaced", flags.output.c_str(), counted(trained.values.size(), "weight").c_str());
  if (adapters > 0) std::printf(", %zu of them by merging adapters", adapters);
  if (trained.averages > 0) std::printf(", %zu of them by moving averages", trained.averages);
  if (trained.skipped > 0)
    std::printf("; %s of the training skipped", counted(trained.skipped, "state").c_str());
  if (!data.empty()) std::printf("; data in %s", data.c_str());
  std::printf("\n");
  constexpr size_t kShown = 3;
  if (const size_t count = trained.converted.size(); count > 0)
    note(cat(counted(count, "tensor"), count == 1 ? " was" : " were", " converted: ",
             join(std::vector<std::string>(
                      trained.converted.begin(),
                      trained.converted.begin() + static_cast<std::ptrdiff_t>(std::min(count, kShown))),
                  ", "),
             count > kShown ? ", ..." : ""),
         globals);
}

// Of a model of any format: its file is not written.
int export_peft(const ExportFlags& flags, const Globals& globals) {
  check_files(flags, {});
  ParameterFile state = read_parameters(flags.state);
  const std::vector<Adapter> adapters = take_adapters(
      state, flags.model, [](const std::string&) { return false; }, !flags.without_averages, flags.alpha);
  if (adapters.empty())
    fail(ErrorKind::kUsage, "no-adapters", cat("'", flags.state, "' has no adapters"),
         "compile with --lora, or leave --lora-form out");
  write_peft(flags.output, adapters);
  const auto others = std::ranges::count_if(
      state.tensors, [](const auto& each) { return !train::is_training_state(each.first); });
  if (others > 0)
    note(cat(counted(others, "weight"), " without adapters ", others == 1 ? "is" : "are",
             " not in PEFT's files"),
         globals);
  if (globals.json)
    std::printf("%s\n", Json{{"folder", flags.output}, {"adapters", adapters.size()}}.dump(2).c_str());
  else if (!globals.quiet)
    std::printf("%s  %s in PEFT's form\n", flags.output.c_str(), counted(adapters.size(), "adapter").c_str());
  return 0;
}

int run(const ExportFlags& flags, const Globals& globals) {
  if (flags.peft) return export_peft(flags, globals);
  refuse_archive(flags.model);
  onnx::WeightEditor editor(flags.model);
  check_files(flags, editor.data_files());
  ParameterFile state = read_parameters(flags.state);
  std::vector<Adapter> adapters;
  TrainedWeights trained;
  try {
    adapters = take_adapters(
        state, flags.model, [&](const std::string& name) { return editor.weights().contains(name); },
        !flags.without_averages, flags.alpha);
    check_mergeable(adapters);
    trained = match_weights(state, editor.weights(), !flags.without_averages);
    if (trained.values.empty() && adapters.empty())
      fail(ErrorKind::kDoesNotFit, "other-weights", "the file has no weight of the model",
           "name a file of 'stridec train --save'");
  } catch (Error& error) {
    if (error.diagnostic.where.file.empty()) error.diagnostic.where.file = flags.state;
    throw;
  }
  for (const Adapter& adapter : adapters) {
    const auto given = trained.values.find(adapter.weight);
    trained.values[adapter.weight] =
        merged(adapter, given == trained.values.end() ? editor.data(adapter.weight) : given->second,
               *dtype_from_onnx(editor.weights().at(adapter.weight).elem_type));
  }
  for (const auto& [name, bytes] : trained.values) editor.replace(name, bytes);
  const std::string data = editor.write(flags.output, place_of(flags.weights));
  report(flags, trained, adapters.size(), data, globals);
  return 0;
}

}  // namespace

std::function<int()> declare_export(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<ExportFlags>();
  app.add_option("model", flags->model,
                 "the model that was trained: ONNX, or with --lora-form peft also .pt2")
      ->required()
      ->type_name("MODEL");
  app.add_option("--state", flags->state,
                 "the trained weights by name: a .safetensors file of 'stridec train --save', or any other")
      ->required()
      ->type_name("FILE");
  app.add_option("-o,--output", flags->output, "the ONNX model to write, or the folder of --lora-form peft")
      ->required()
      ->type_name("FILE");
  app.add_option("--weights", flags->weights,
                 "embed: the weights are in the model; external: in OUTPUT.data beside it (default: as in "
                 "the given model)")
      ->check(CLI::IsMember({"embed", "external"}));
  app.add_option_function<std::string>(
         "--lora-form", [flags](const std::string& form) { flags->peft = form == "peft"; },
         "how adapters of --lora are written: merged into the weights (the default), or peft: as a folder "
         "with adapter_model.safetensors and adapter_config.json")
      ->check(CLI::IsMember({"merged", "peft"}));
  app.add_option(
         "--lora-alpha", flags->alpha,
         "alpha of the adapters, if the file of --state lacks it: they are multiplied by alpha / rank")
      ->type_name("NUMBER");
  app.add_flag("--without-averages", flags->without_averages,
               "write the weights themselves; by default their moving averages are written, if the training "
               "kept them (ema)");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
