// train: runs the training functions of an artifact over samples, and saves and resumes its states.
#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
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
#include "cli/written_files.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/train/settings.h"

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

// Whether a loss that is not finite is no error, because loss scaling skips the step and lowers the scale.
bool scales_down(const Library& library) {
  for (const ValueDeclaration& state : library.states())
    if (state.name == kScale) return scalar(library.read_state(state)) > 1;
  return false;
}

// The settings of the training, as the manifest has them; export reads them in a save.
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
    note(cat("warning: '", path, "' has ",
             counted(more, "tensor that is no state", "tensors that are no states"),
             " of the artifact: a training with other settings saved it"),
         globals);
}

// Inputs without a dim of samples. Another version may have written the settings.
std::vector<std::string> whole_inputs(const Library& library) {
  try {
    const auto settings = train::parse_settings(training_of(library)).of_loss;
    if (const auto weights = settings.find("class_weights"); weights != settings.end())
      return {weights->second};
  } catch (const Error&) {
  }
  return {};
}

// Calls `use` with the whole numbers in the text, until it returns true.
template <class Use>
void for_each_number(const std::string& text, Use use) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    int64_t value = 0;
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (begins && error == std::errc() && use(value)) return;
    at = std::max(at + 1, begins ? static_cast<size_t>(end - text.data()) : at + 1);
  }
}

// Appends to the error of a step where the data have a number that the message contains: the file, and the
// element or sample.
void locate(Error& error, const TrainingData& data) {
  if (error.diagnostic.kind != ErrorKind::kDoesNotFit) return;
  std::string& message = error.diagnostic.message;
  for_each_number(std::string(message), [&](int64_t value) {
    const auto place = data.find(value);
    if (!place) return false;
    message += cat("; '", place->file, "' has it ",
                   place->element.empty()
                       ? ""
                       : cat("at [", join(place->element, ", ", [](int64_t i) { return cat(i); }), "] "));
    message += place->sample < 0 ? cat("for input '", place->input, "'")
                                 : cat("in sample ", place->sample, ", counted from 0");
    return true;
  });
}

struct StepResult {
  double loss;
  std::optional<double> grad_norm;  // if the artifact returns it
};

// Runs one update.
class Trainer {
 public:
  Trainer(Library& library, const Flags& flags) : library_(library), flags_(flags) {
    const auto has = [&](const char* name) { return std::ranges::count(library.functions(), name) > 0; };
    const bool parts = flags.accumulate > 1;
    for (const char* name : {parts ? "accumulate" : "train_step", parts ? "apply" : "train_step"})
      if (!has(name))
        fail(ErrorKind::kUsage, "no-training",
             cat("the artifact has no function '", name, "', only ", join(library.functions(), ", ")),
             parts ? "compile it with --train ...,functions=accumulate+apply+predict"
             : training_of(library).empty()
                 ? "compile the model with --train loss=NAME,..."
                 : "compile it with --train ...,functions=train_step+eval+predict, the default");
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
      const std::vector<Array>& batch = data.at(step * flags_.accumulate + part);
      try {
        outputs = library_.run(with_rate(batch));
      } catch (Error& error) {
        locate(error, data);
        throw;
      }
      loss += scalar(outputs[0]) / static_cast<double>(flags_.accumulate);
    }
    if (flags_.accumulate > 1) {
      library_.select("apply");
      outputs = library_.run(with_rate({}));
    }
    const auto names = names_of(library_.outputs());
    const auto at = std::ranges::find(names, "grad_norm");
    if (at == names.end()) return {loss, {}};
    return {loss, scalar(outputs[at - names.begin()])};
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

// Fails before the first step where a file would replace one that is read. A save may be resumed in place.
void check_files(const Flags& flags, const std::vector<std::string>& inputs) {
  const OutputFile save{flags.save, "the state of the training",
                        "choose another name: --save run.safetensors"},
      curve{flags.curve, "the curve", "choose another name: --curve loss.svg"};
  check_outputs({save, curve}, inputs);
  check_outputs({curve}, {flags.resume});
}

int run(const Flags& flags, const Globals& globals) {
  if (flags.save_every > 0 && flags.save.empty())
    fail(ErrorKind::kUsage, "no-save", "--save-every needs a file to save to", "give --save FILE");
  std::vector<std::string> named = files_named(flags.data);
  named.push_back(flags.artifact);
  check_files(flags, named);
  Library library(flags.artifact, flags.threads);
  check_files(flags, files_of_artifact(flags.artifact, library.manifest()));
  check_extension(flags.save, "the state of the training", {".safetensors"}, "--save run.safetensors");
  check_extension(flags.curve, "the curve", {".svg"}, "--curve loss.svg", /*only=*/true);
  Trainer trainer(library, flags);
  TrainingData data(library, flags.data, {kRate}, whole_inputs(library), flags.batch, flags.seed);
  if (!flags.resume.empty()) resume(library, flags.resume, globals);
  const int64_t first = steps_done(library);
  ProgressPrinter progress(globals);
  std::vector<double> losses, norms;
  const auto start = std::chrono::steady_clock::now();
  const int64_t shown = flags.log > 0 ? flags.log : std::max<int64_t>(1, flags.steps / 10);
  for (int64_t i = 0; i < flags.steps; ++i) {
    const StepResult result = trainer.run(data, first + i);
    losses.push_back(result.loss);
    if (result.grad_norm) norms.push_back(*result.grad_norm);
    if (!std::isfinite(result.loss) && !scales_down(library))
      fail(ErrorKind::kDoesNotFit, "diverged",
           cat("the loss of step ", first + i + 1, " is ", std::isnan(result.loss) ? "nan" : "infinite",
               flags.save_every > 0 ? "" : "; nothing was saved"),
           "try a lower learning rate, clip_norm=1, or other data");
    const std::string text =
        cat("loss ", result.loss, result.grad_norm ? cat(", gradient norm ", *result.grad_norm) : "");
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
  app.add_option(
         "--data", flags->data,
         "the samples: name=file.npy, once for each input, or all.npz with an array for each; the first dim "
         "counts samples")
      ->type_name("[NAME=]FILE");
  app.add_option("--steps", flags->steps, "how many updates of the weights")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option(
         "--batch", flags->batch,
         "samples in a batch (default: the batch size of the model if it is fixed, otherwise 32, or all "
         "samples if they are fewer)")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option(
         "--accumulate", flags->accumulate,
         "batches whose gradients are summed for one update; above 1 the artifact needs the functions "
         "accumulate and apply")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option("--lr", flags->rate, "the learning rate, if the artifact was compiled with lr=input")
      ->check(zero_or_more)
      ->type_name("RATE");
  app.add_option("--seed", flags->seed, "seed of the order in which samples are taken")->type_name("NUMBER");
  app.add_option("--save", flags->save,
                 "write the weights and all other states to this .safetensors file at the end")
      ->type_name("FILE");
  app.add_option("--save-every", flags->save_every, "also save every STEPS steps, over the same file")
      ->check(above_zero)
      ->type_name("STEPS");
  app.add_option("--resume", flags->resume, "continue from a file that --save wrote")->type_name("FILE");
  app.add_option("--curve", flags->curve, "draw the losses: an .svg file")->type_name("FILE");
  app.add_option("--log", flags->log, "print the loss every STEPS steps (default: ten times in all)")
      ->check(above_zero)
      ->type_name("STEPS");
  app.add_option("--threads", flags->threads,
                 "threads of a run (default: STRIDEC_THREADS, or as many as the process may use)")
      ->check(zero_or_more)
      ->type_name("NUMBER");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
