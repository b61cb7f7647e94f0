// train: runs the training functions of an artifact over samples, and saves and resumes its states.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/given_inputs.h"
#include "cli/library.h"
#include "cli/loss_curve.h"
#include "cli/output.h"
#include "cli/parameter_file.h"
#include "cli/progress.h"
#include "cli/training_data.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRate = "lr";
constexpr const char* kStep = "optimizer.step";
constexpr const char* kScale = "loss_scale";

struct Flags {
  std::string artifact, save, resume, curve;
  std::vector<std::string> data;
  int64_t steps = 100, batch = 0, accumulate = 1, save_every = 0, log = 0;
  uint64_t seed = 0;
  double rate = -1;
  int threads = 0;
};

double scalar(const Array& array) { return read_float(array.dtype, array.bytes.data()); }

Array rate_array(double rate) {
  Array array{.dtype = DType::kF32, .shape = {}, .bytes = std::vector<uint8_t>(sizeof(float))};
  const float narrow = static_cast<float>(rate);
  std::memcpy(array.bytes.data(), &narrow, sizeof(narrow));
  return array;
}

int64_t steps_done(const Library& library) {
  for (const ValueDeclaration& state : library.states())
    if (state.name == kStep) return static_cast<int64_t>(scalar(library.read_state(state)) + 0.5);
  return 0;
}

// Whether a loss that is not finite is only a step that loss scaling skips.
bool scales_down(const Library& library) {
  for (const ValueDeclaration& state : library.states())
    if (state.name == kScale) return scalar(library.read_state(state)) > 1;
  return false;
}

// How the artifact was trained; export reads it.
std::string training_of(const Library& library) {
  const Json manifest = Json::parse(library.manifest(), nullptr, /*allow_exceptions=*/false);
  const Json options = manifest.is_object() ? manifest.value("options", Json::object()) : Json::object();
  const Json train = options.is_object() ? options.value("train", Json()) : Json();
  return train.is_string() ? train.get<std::string>() : "";
}

void save(const Library& library, const std::string& path) {
  std::vector<std::pair<std::string, Array>> tensors;
  for (const ValueDeclaration& state : library.states())
    tensors.emplace_back(state.name, library.read_state(state));
  write_safetensors(path, tensors,
                    {{"step", std::to_string(steps_done(library))}, {"train", training_of(library)}});
}

void resume(Library& library, const std::string& path, const Globals& globals) {
  const ParameterFile file = read_parameters(path);
  const auto states = library.states();
  std::vector<DeclaredTensor> declared;
  for (const ValueDeclaration& state : states)
    declared.push_back({state.name, state.shape_text, state.dtype});
  check_tensors(file, declared, /*partial=*/false, "other-states",
                cat("'", path,
                    "' is a save of another training: resume with the artifact of the same model "
                    "and the same --train"));
  for (const ValueDeclaration& state : states) {
    const FileTensor& tensor = file.tensors.at(state.name);
    library.write_state(
        state.name,
        {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}});
  }
  if (const size_t more = file.tensors.size() - states.size(); more > 0)
    note(cat("warning: '", path, "' has ", more,
             more == 1 ? " tensor that is no state" : " tensors that are no states",
             " of the artifact: a training with other settings saved it"),
         globals);
}

struct StepResult {
  double loss, grad_norm;
};

// Runs one update.
class Trainer {
 public:
  Trainer(Library& library, const Flags& flags) : library_(library), flags_(flags) {
    const auto has = [&](const char* name) { return std::ranges::count(library.functions(), name) > 0; };
    const bool parts = flags.accumulate > 1;
    for (const char* name : {parts ? "accumulate" : "train_step", parts ? "apply" : "train_step"})
      if (!has(name))
        fail(ErrorKind::kUsage, "no-training", cat("the artifact has no function '", name, "'"),
             parts ? "compile it with --train ...,functions=accumulate+apply+predict"
                   : "compile the model with --train loss=NAME,...");
    forward_ = parts ? "accumulate" : "train_step";
    library.select(parts ? "apply" : "train_step");
    const bool wants_rate = std::ranges::count(names_of(library.inputs()), kRate) > 0;
    if (wants_rate && flags.rate < 0)
      fail(ErrorKind::kUsage, "missing-input", "the learning rate is an input of the step", "give --lr 1e-3");
    if (!wants_rate && flags.rate >= 0)
      fail(ErrorKind::kUsage, "no-rate", "the learning rate was chosen when the artifact was compiled",
           "leave --lr out, or compile with lr=input");
    library.select(forward_);
  }

  StepResult run(TrainingData& data, int64_t step) {
    double loss = 0;
    std::vector<Array> outputs;
    for (int64_t part = 0; part < flags_.accumulate; ++part) {
      library_.select(forward_);
      outputs = library_.run(with_rate(data.at(step * flags_.accumulate + part)));
      loss += scalar(outputs[0]) / static_cast<double>(flags_.accumulate);
    }
    if (flags_.accumulate == 1) return {loss, scalar(outputs[1])};
    library_.select("apply");
    return {loss, scalar(library_.run(with_rate({}))[0])};
  }

 private:
  std::vector<Array> with_rate(std::vector<Array> inputs) const {
    const auto names = names_of(library_.inputs());
    const auto at = std::ranges::find(names, kRate);
    if (at != names.end()) inputs.insert(inputs.begin() + (at - names.begin()), rate_array(flags_.rate));
    return inputs;
  }

  Library& library_;
  const Flags& flags_;
  std::string forward_;
};

int run(const Flags& flags, const Globals& globals) {
  if (flags.save_every > 0 && flags.save.empty())
    fail(ErrorKind::kUsage, "no-save", "--save-every has no file", "give --save FILE");
  for (const std::string& path : {flags.save, flags.curve})
    if (!path.empty()) check_replaceable(path);
  Library library(flags.artifact, flags.threads);
  Trainer trainer(library, flags);
  TrainingData data(library, flags.data, {kRate}, flags.batch, flags.seed);
  if (!flags.resume.empty()) resume(library, flags.resume, globals);
  const int64_t first = steps_done(library);
  ProgressPrinter progress(globals);
  std::vector<double> losses, norms;
  const auto start = std::chrono::steady_clock::now();
  const int64_t shown = flags.log > 0 ? flags.log : std::max<int64_t>(1, flags.steps / 10);
  for (int64_t i = 0; i < flags.steps; ++i) {
    const StepResult result = trainer.run(data, first + i);
    losses.push_back(result.loss);
    norms.push_back(result.grad_norm);
    if (!std::isfinite(result.loss) && !scales_down(library))
      fail(ErrorKind::kDoesNotFit, "diverged",
           cat("the loss of step ", first + i + 1, " is ", std::isnan(result.loss) ? "nan" : "infinite",
               flags.save_every > 0 ? "" : "; nothing was saved"),
           "try a lower learning rate, clip_norm=1, or other data");
    const std::string text = cat("loss ", result.loss, ", gradient norm ", result.grad_norm);
    progress.update("training", i + 1, flags.steps, text);
    if ((i + 1) % shown == 0 || i + 1 == flags.steps)
      progress.line("training", cat("step ", first + i + 1, ": ", text));
    if (flags.save_every > 0 && !flags.save.empty() && (i + 1) % flags.save_every == 0)
      save(library, flags.save);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!flags.save.empty()) save(library, flags.save);
  if (!flags.curve.empty() && !losses.empty()) write_file(flags.curve, loss_curve(losses, first + 1));
  const double rate =
      static_cast<double>(flags.steps * flags.accumulate * data.batch()) / std::max(seconds, 1e-9);
  if (globals.json) {
    const Json json = {{"first_step", first + 1}, {"losses", losses},      {"grad_norms", norms},
                       {"seconds", seconds},      {"batch", data.batch()}, {"samples_per_second", rate},
                       {"saved", flags.save},     {"curve", flags.curve}};
    std::printf("%s\n", json.dump(2).c_str());
  } else if (!globals.quiet) {
    std::printf("%lld steps of %lld samples: loss %.6g -> %.6g, %.4g samples/s%s\n",
                static_cast<long long>(flags.steps), static_cast<long long>(data.batch() * flags.accumulate),
                losses.empty() ? 0 : losses.front(), losses.empty() ? 0 : losses.back(), rate,
                flags.save.empty() ? "" : cat(" -> ", flags.save).c_str());
  }
  return 0;
}

}  // namespace

std::function<int()> declare_train(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("artifact", flags->artifact, "the .so, compiled with --train")->required();
  app.add_option("--data", flags->data,
                 "samples, once for each input: name=file.npy, or all.npz; the first dim counts samples")
      ->type_name("[NAME=]FILE");
  app.add_option("--steps", flags->steps, "how many updates")->check(above_zero)->type_name("NUMBER");
  app.add_option("--batch", flags->batch, "samples per step (default: the model's batch size, or 32)")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option("--accumulate", flags->accumulate,
                 "how many batches' gradients one update sums; needs the functions accumulate and apply")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option("--lr", flags->rate, "the learning rate, if it is an input")
      ->check(zero_or_more)
      ->type_name("RATE");
  app.add_option("--seed", flags->seed, "seed of the order of the samples")->type_name("NUMBER");
  app.add_option("--save", flags->save, "a .safetensors file for parameters and all other states, at the end")
      ->type_name("FILE");
  app.add_option("--save-every", flags->save_every, "also save every this many steps")
      ->check(above_zero)
      ->type_name("STEPS");
  app.add_option("--resume", flags->resume, "a file of --save to go on from")->type_name("FILE");
  app.add_option("--curve", flags->curve, "an .svg file for the losses")->type_name("FILE");
  app.add_option("--log", flags->log, "report every this many steps (default: ten times in all)")
      ->check(above_zero)
      ->type_name("STEPS");
  app.add_option("--threads", flags->threads,
                 "threads of a run (default: STRIDEC_THREADS, or as many as the process may use)")
      ->check(zero_or_more)
      ->type_name("NUMBER");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
