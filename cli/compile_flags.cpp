#include "cli/compile_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/checks.h"
#include "cli/given_inputs.h"
#include "cli/interrupt.h"
#include "cli/library.h"
#include "cli/parameter_file.h"
#include "cli/suggest.h"
#include "cli/train_config.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/extend/kernel_file.h"
#include "compiler/extend/user_operator.h"
#include "compiler/memory_budget.h"
#include "compiler/passes/autocast.h"

namespace stridec::cli {

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) items.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return items;
}

namespace {

// "batch=1,8" and "sequence=128" give {batch 1, sequence 128}, {batch 8, sequence 128}.
std::vector<loop::SymbolValues> combinations(const std::vector<std::string>& flags) {
  constexpr size_t kMost = 16;
  std::vector<loop::SymbolValues> all;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    const std::string name = flag.substr(0, equals);
    std::vector<loop::SymbolValues> longer;
    for (const std::string& value : split_list(equals == std::string::npos ? "" : flag.substr(equals + 1))) {
      const int64_t size = parse_sizes(cat(name, "=", value)).at(name);
      for (loop::SymbolValues sizes : all.empty() ? std::vector<loop::SymbolValues>(1) : all) {
        if (!sizes.emplace(name, size).second)
          fail(ErrorKind::kUsage, "bad-size", cat("--specialize names '", name, "' twice"),
               "write batch=1,8 once");
        longer.push_back(std::move(sizes));
      }
    }
    if (longer.empty() || longer.size() > kMost)
      fail(ErrorKind::kUsage, "bad-size",
           longer.empty()
               ? cat("'", flag, "' is not of the form name=size,size")
               : cat("--specialize asks for ", longer.size(), " programs; the limit is ", kMost, ""),
           "write --specialize batch=1,8");
    all = std::move(longer);
  }
  return all;
}

}  // namespace

namespace {

template <class Rows>
std::vector<std::string> names_in(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

// "{default,reduce-overhead,...}": the value's name in --help, from which completion takes the choices.
template <class Rows>
std::string choices(const Rows& rows) {
  return cat("{", join(names_in(rows), ","), "}");
}

void declare_model(CLI::App& app, CompileFlags& f, const std::string& what) {
  app.add_option("model", f.model, what);
  app.add_option(
         "--function", f.functions,
         "an entry point of the artifact and its model, once for each, in place of the model: "
         "prefill=prefill.onnx. Functions share equal weights, and states and replaceable weights of one "
         "name. Flags that name a size, an input, a state or a weight apply to every function that has it, "
         "or to one: --dim decode:batch=1..8")
      ->type_name("NAME=MODEL");

  app.add_option(
         "--method", f.methods,
         "the method of a TorchScript module to compile in place of forward(), or the program of a .pt2 file "
         "of several: encode, or of one function: --method encoder:encode")
      ->type_name("NAME");
}

void declare_targets(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Targets");
  app.add_option("--target", f.targets, "cpu, cuda, or cpu,cuda: both in one library (default: cpu)")
      ->join(',')
      ->type_name("LIST");
  app.add_option(
         "--cpu", f.cpus,
         "CPU variants to build: x86-64-v2, x86-64-v3, x86-64-v4, znver4, ... (default: this machine's)")
      ->join(',')
      ->type_name("LIST");
  app.add_option("--gpu", f.gpus,
                 "GPU variants to build: sm_80, sm_90a, ptx, ... (default: sm_90a,sm_80,ptx)")
      ->join(',')
      ->type_name("LIST");
  app.add_option("--nvrtc", f.nvrtc, "the library that builds GPU kernels: libnvrtc.so.13 or its folder")
      ->type_name("FILE");
}

void declare_sizes(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Sizes, values and states");
  app.add_option("--dim", f.dims, "values or ranges of named sizes: batch=1..64,sequence=1..512%8,height=224")
      ->join(',')
      ->type_name("NAME=SIZES");
  app.add_option(
         "--specialize", f.specialize,
         "sizes that get a program of their own in addition to the general one: batch=1,8 (of several "
         "flags, every combination)")
      ->type_name("NAME=LIST");
  app.add_option("--shape", f.shapes,
                 "the type of an input of a TorchScript file, which has none: image=batch,3,224,224, "
                 "image=1x3x224x224 or ids=i64[batch,time]")
      ->type_name("NAME=SIZES");
  app.add_option(
         "--layout", f.layouts,
         "the order in which the dims of an input, output or state lie in memory: image=nhwc (its dims "
         "are n, c, h, w) or image=0,2,3,1; its shape stays the model's")
      ->type_name("NAME=ORDER");
  app.add_option(
         "--input-value", f.input_values,
         "promise that this input of integers or bools always has this value, one for each element: "
         "sr=16000, "
         "flag=true or size=3,2. Code for other values is left out, and a run with another is refused")
      ->type_name("NAME=VALUE");
  app.add_option(
         "--refit", f.refit,
         "weights that may be replaced after compilation, by 'stridec refit' or the C API: NAME, or a "
         "pattern such as 'encoder.*' or '*'")
      ->type_name("NAME");
  app.add_option("--state", f.states,
                 "an input and the output that it becomes, kept from run to run: past_key_0=present_key_0, "
                 "or past_*=present_*")
      ->type_name("INPUT=OUTPUT");
}

void declare_extensions(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Extensions");
  app.add_option("--rewrites", f.rewrites,
                 "rewrite rules of your own, which are checked before their first use; of several files, in "
                 "this order")
      ->type_name("FILE");
  app.add_option("--ops", f.ops,
                 "operators of your own, declared in JSON: shapes, types and a body ('stridec schema ops'); "
                 "'stridec check' drafts the file for a model with unknown operators")
      ->type_name("FILE");
  app.add_option("--kernels", f.kernels,
                 "a folder of kernels in C of your own for operations that the compiler knows; each is "
                 "compared with the compiler's in results and time, and is used where it is faster")
      ->type_name("FOLDER");
  app.add_flag("--check-ops", f.check_ops,
               "run the kernels of --ops on drawn inputs first, at several strides, and check that they "
               "touch nothing outside their tensors");
  app.add_option("--pass", f.passes,
                 "a pass of your own: after=NAME, and a command that reads the graph as text and writes it. "
                 "'stridec passes' lists the names")
      ->type_size(2)
      ->type_name("after=NAME COMMAND");
  app.add_option("--plugin", f.plugins,
                 "a pass of your own in a shared library with the interface of stridec/plugin.h")
      ->type_size(2)
      ->type_name("after=NAME FILE");
}

void declare_training(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Training");
  app.add_option("--train", f.training,
                 "make an artifact that trains the model: loss=mse,output=y,target=t,optimizer=adamw. "
                 "'stridec losses' "
                 "and 'stridec optimizers' list the settings; functions=train_step+eval+predict, the "
                 "default, gives it "
                 "a training step, the loss with the model's outputs, and the outputs alone")
      ->type_name("NAME=VALUE,...");
  app.add_option("--train-config", f.train_config,
                 "the settings of --train in a JSON file; --train replaces single ones")
      ->type_name("FILE");
  app.add_option("--trainable", f.trainable,
                 "weights that are trained: NAME, or a pattern such as 'decoder.*' (default: '*')")
      ->type_name("NAME");
  app.add_option("--lora", f.lora,
                 "train low-rank adapters for weights that stay as they are: "
                 "rank=8,alpha=16,targets=*q_proj*|*v_proj*")
      ->type_name("NAME=VALUE,...");
  app.add_option("--freeze", f.frozen_weights, "weights that are not trained, even if --trainable names them")
      ->type_name("NAME");

  app.add_option("--activation-memory-budget", f.memory_budget,
                 "limit of the memory for a run's tensors: some are computed again instead of kept. From 0 "
                 "(least memory) to 1 (keep everything), or in bytes: 2GiB")
      ->type_name("BUDGET");
}

void declare_code(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Code");
  app.add_option("--mode", f.mode, "what to optimise for; 'stridec modes' explains them")
      ->type_name(choices(modes()));
  app.add_option("--precision", f.precision,
                 "precision of GEMMs and convolutions: fp32 (what the model says), tf32 (on a GPU), bf16, "
                 "fp16")
      ->type_name(choices(passes::precisions()));
  app.add_option("-O", f.settings, "an option of the optimiser; 'stridec options' lists them")
      ->type_name("KEY=VALUE");
  app.add_option("--weights", f.weights, "embed: in the library; external: in a file next to it")
      ->check(CLI::IsMember({"embed", "external"}));
  app.add_option(
         "--weights-from", f.weights_from,
         "a safetensors file with the weights that the model's own file lacks, as a .pt2 file that was "
         "exported from fake tensors; of several files, one flag each")
      ->type_name("FILE");

  app.add_option("--metadata", f.metadata, "text for the manifest: version=1.4; may be repeated")
      ->type_name("KEY=VALUE");
}

void declare_tuning(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Tuning");
  app.add_option("--tune-db", f.tune_db,
                 "tuning database: schedules are taken from it, and max-autotune adds to it (default: this "
                 "user's, with max-autotune)")
      ->type_name("FILE");
  app.add_flag("--frozen", f.frozen, "take all schedules from the database, and fail where one is missing");
  app.add_option("--tune-shape", f.tune_shapes,
                 "sizes to tune for: batch=1,sequence=128; with several flags, schedules that serve all of "
                 "them are chosen")
      ->type_name("NAME=SIZE,...");
  app.add_option(
         "--tune-seconds", f.tune_seconds,
         "about how long to measure, all programs together; kernels that get no time keep their default "
         "schedules (default: 45 for each program)")
      ->check(above_zero)
      ->type_name("SECONDS");
}

void declare_limits(CLI::App& app, CompileFlags& f) {
  app.option_defaults()->group("Limits");
  app.add_option(
         "--max-seconds", f.budget.seconds,
         "end with exit code 6 after this time; measuring ends in time, and what was measured stays in "
         "the database (default: no limit)")
      ->check(above_zero)
      ->type_name("SECONDS");
  app.add_option("--max-memory", f.budget.memory,
                 "end with exit code 6 if more memory is needed, not counting mapped files: 600MB, 2GB "
                 "(default: no limit)")
      ->transform(CLI::Validator(to_bytes, "", "size"))
      ->type_name("SIZE");
  app.add_flag("--no-cache", f.no_cache, "build every kernel anew");
}

}  // namespace

void CompileFlags::declare(CLI::App& app, const std::string& what) {
  declare_model(app, *this, what);
  declare_targets(app, *this);
  declare_sizes(app, *this);
  declare_extensions(app, *this);
  declare_training(app, *this);
  declare_code(app, *this);
  declare_tuning(app, *this);
  declare_limits(app, *this);
  app.option_defaults()->group("Options");
}

namespace {

// Characters of a function's name: it is part of other flags, and of the names of dumps.
bool allowed_in_names(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

}  // namespace

std::vector<FunctionModel> parse_functions(const std::vector<std::string>& given) {
  std::vector<FunctionModel> functions;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    FunctionModel function{.name = text.substr(0, equals),
                           .model = equals == std::string::npos ? "" : text.substr(equals + 1)};
    if (function.name.empty() || function.model.empty())
      fail(ErrorKind::kUsage, "bad-function", cat("'", text, "' is not of the form name=model"),
           "write --function prefill=prefill.onnx");
    if (!std::ranges::all_of(function.name, allowed_in_names))
      fail(ErrorKind::kUsage, "bad-function",
           cat("'", function.name,
               "' cannot be the name of a function, which consists of letters, digits, '_', '-' and '.'"),
           "other flags name functions as in decode:batch=1");
    if (std::any_of(functions.begin(), functions.end(),
                    [&](const FunctionModel& other) { return other.name == function.name; }))
      fail(ErrorKind::kUsage, "bad-function", cat("two functions are named '", function.name, "'"),
           "give each a name of its own");
    functions.push_back(std::move(function));
  }
  return functions;
}

// "rank=8,alpha=16,targets=A|B" in the form of --train: "lora=A|B(rank=8,alpha=16)".
std::string lora_text(const std::string& given) {
  std::string targets, others;
  for (const std::string& item : split_list(given)) {
    if (item.starts_with("targets="))
      targets = item.substr(item.find('=') + 1);
    else
      others += cat(others.empty() ? "" : ",", item);
  }
  if (targets.empty())
    fail(ErrorKind::kUsage, "bad-lora", cat("--lora ", given, " names no targets"),
         "write --lora 'rank=8,alpha=16,targets=*q_proj*|*v_proj*'");
  return cat("lora=", targets, "(", others, ")");
}

// --train, --train-config, --trainable, --lora and --freeze; none: the model is not trained.
std::optional<train::Settings> parse_training(const CompileFlags& flags) {
  if (flags.training.empty() && flags.train_config.empty()) {
    if (!flags.trainable.empty() || !flags.frozen_weights.empty() || !flags.lora.empty())
      fail(ErrorKind::kUsage, "bad-train", "--trainable, --freeze and --lora select weights for --train",
           "add --train loss=NAME,...");
    return std::nullopt;
  }
  if (!flags.functions.empty() || !flags.refit.empty())
    fail(ErrorKind::kUsage, "bad-train", cat("--train cannot be combined with --function or --refit"),
         "its functions are named by functions=train_step+predict; their weights can be written at run time");
  std::vector<std::string> texts = flags.training;
  if (!flags.train_config.empty()) texts.insert(texts.begin(), read_train_config(flags.train_config));
  if (!flags.lora.empty()) texts.push_back(lora_text(flags.lora));
  train::Settings settings = train::parse_settings(join(texts, ","));
  if (!flags.trainable.empty()) settings.trainable = flags.trainable;
  settings.frozen.insert(settings.frozen.end(), flags.frozen_weights.begin(), flags.frozen_weights.end());
  train::check(settings);
  return settings;
}

// --rewrites, --ops, --pass and --plugin.
extend::Extensions parse_extensions(const CompileFlags& flags) {
  extend::Extensions made;
  for (const std::string& file : flags.ops)
    made.operators.push_back(std::make_shared<extend::OperatorFile>(extend::read_operators(file)));
  const extend::Operators operators(made.operators);  // refuses what two files declare
  for (const std::string& file : flags.rewrites) {
    if (std::ranges::count(flags.rewrites, file) > 1)
      fail(ErrorKind::kUsage, "usage", cat("--rewrites names '", file, "' twice"), "name each file once");
    made.rules.push_back(extend::read_rules(file, &operators));
  }
  for (const std::string& folder : flags.kernels)
    for (const std::string& file : extend::kernel_files(folder))
      made.kernels.push_back(std::make_shared<extend::KernelFile>(extend::read_kernels(file)));
  made.checks_ops = flags.check_ops;
  constexpr std::string_view kAfter = "after=";
  const auto add = [&](const auto& given, bool plugin) {
    for (const auto& [place, command] : given) {
      if (!place.starts_with(kAfter) || place.size() == kAfter.size() || command.empty())
        fail(ErrorKind::kUsage, "usage", cat("'", place, "' does not say after which pass to run"),
             plugin ? "write --plugin after=import pass.so" : "write --pass after=import 'python3 pass.py'");
      made.passes.push_back(
          {.after = place.substr(kAfter.size()),
           .command = command,
           .plugin = plugin,
           .sha256 = plugin ? sha256_of_file(command) : sha256(command.data(), command.size())});
    }
  };
  add(flags.passes, false);
  add(flags.plugins, true);
  made.max_seconds = flags.budget.seconds;
  made.max_memory = flags.budget.memory;
  return made;
}

namespace {

// "encode", for every function, or "encoder:encode" for one.
void choose_methods(const std::vector<std::string>& methods, CompileOptions& made) {
  for (const std::string& text : methods) {
    const size_t colon = text.find(':');
    const std::string function = text.substr(0, colon == std::string::npos ? 0 : colon),
                      method = text.substr(colon == std::string::npos ? 0 : colon + 1);
    bool used = made.functions.empty() && function.empty();
    if (used) made.method = method;
    for (FunctionModel& own : made.functions)
      if (function.empty() || own.name == function) own.method = method, used = true;
    if (!used)
      fail(ErrorKind::kUsage, "no-such-function",
           cat("--method ", text, ": there is no function '", function, "'"),
           "name one of --function, or write --method NAME");
  }
}

void add_metadata(const std::vector<std::string>& metadata, CompileOptions& made) {
  for (const std::string& text : metadata) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(ErrorKind::kUsage, "bad-metadata", cat("'", text, "' is not of the form key=text"),
           "write --metadata version=1.4");
    if (!made.metadata.emplace(text.substr(0, equals), text.substr(equals + 1)).second)
      fail(ErrorKind::kUsage, "bad-metadata", cat("--metadata names '", text.substr(0, equals), "' twice"),
           "write each key once");
  }
}

// The -O flags.
void add_settings(const std::vector<std::string>& settings, CompileOptions& made) {
  for (const auto& setting : settings) {
    const size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    const auto known = std::find_if(stridec::options().begin(), stridec::options().end(),
                                    [&](const OptionInfo& o) { return o.name == key; });
    if (known == stridec::options().end())
      fail(ErrorKind::kUsage, "unknown-option", cat("there is no option '", key, "'"),
           cat(did_you_mean_any(key, names_in(stridec::options())),
               "'stridec options' lists them; write -O name=value"));
    const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1),
                      values = cat("|", known->values, "|");
    if (equals == std::string::npos)
      fail(ErrorKind::kUsage, "unknown-value", cat("option '", key, "' needs a value"),
           cat("write -O ", key, "=", known->values));
    if (values.find(cat("|", value, "|")) == std::string::npos)
      fail(ErrorKind::kUsage, "unknown-value", cat("option '", key, "' does not take '", value, "'"),
           cat("it takes ", known->values));
    made.settings[key] = value;
  }
}

// The tensors of --weights-from; null without the flag.
std::shared_ptr<const graph::GivenWeights> read_weights(const std::vector<std::string>& files) {
  if (files.empty()) return nullptr;
  auto all = std::make_shared<graph::GivenWeights>();
  for (const std::string& file : files) {
    const ParameterFile read = read_parameters(file);
    for (const auto& [name, tensor] : read.tensors) {
      const graph::Type type{tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}};
      const graph::Data data{.owner = read.owner,
                             .bytes = reinterpret_cast<const uint8_t*>(tensor.bytes.data()),
                             .size = tensor.bytes.size()};
      if (!all->emplace(name, graph::GivenWeight{type, data}).second)
        fail(ErrorKind::kUsage, "bad-weights", cat("two files of --weights-from have '", name, "'"),
             "name each file once");
    }
  }
  return all;
}

}  // namespace

CompileOptions CompileFlags::options(const Globals& globals) const {
  CompileOptions made;
  made.functions = parse_functions(functions);
  if (model.empty() && made.functions.empty())
    fail(ErrorKind::kUsage, "usage", "no model is given", "name a file, or files by --function name=model");
  if (!model.empty() && !made.functions.empty())
    fail(ErrorKind::kUsage, "usage", cat("'", model, "' is given in addition to functions"),
         cat("name its function: --function name=", model));
  made.training = parse_training(*this);
  if (made.training)
    for (const std::string& name : made.training->functions) made.functions.push_back({name, model});
  choose_methods(methods, made);
  made.model = made.functions.empty() ? model : made.functions[0].model;
  name_work(made.model);
  enforce(budget, made.model, globals);
  if (!targets.empty()) made.targets = split_list(targets);
  made.cpus = split_list(cpus);
  made.gpus = split_list(gpus);
  made.nvrtc = nvrtc;
  made.name = std::filesystem::path(made.model).stem().string();
  add_metadata(metadata, made);
  const auto targeted = [&](const char* name) { return std::ranges::count(made.targets, name) > 0; };
  if (!made.gpus.empty() && !targeted("cuda"))
    fail(ErrorKind::kUsage, "no-such-target", "--gpu needs a GPU among the targets",
         "add --target cuda, or --target cpu,cuda for both in one library");
  if (!made.cpus.empty() && !targeted("cpu"))
    fail(ErrorKind::kUsage, "no-such-target", "--cpu needs a CPU among the targets",
         "add --target cpu,cuda for both in one library");
  made.dims = frontend::parse_dims(dims);
  for (const std::string& shape : shapes) made.shapes.push_back(frontend::parse_input_shape(shape));
  for (const std::string& value : input_values)
    made.input_values.push_back(frontend::parse_input_value(value));
  made.refit = refit;
  made.weights = read_weights(weights_from);
  for (const std::string& state : states) made.states.push_back(frontend::parse_state(state));
  made.layouts = parse_layouts(layouts);
  made.mode = mode;
  if (std::none_of(modes().begin(), modes().end(), [&](const Mode& m) { return m.name == mode; }))
    fail(ErrorKind::kUsage, "unknown-mode", cat("there is no mode '", mode, "'"),
         cat(did_you_mean(mode, names_in(modes())), "'stridec modes' lists them"));
  add_settings(settings, made);
  if (!memory_budget.empty()) made.memory_budget = parse_memory_budget(memory_budget);
  made.precision = passes::precision(precision).name;
  if (made.training && made.precision == "fp16" && made.training->loss_scale.empty())
    made.training->loss_scale = "dynamic";
  made.specialize = combinations(specialize);
  if (!made.specialize.empty() && !targeted("cpu"))
    fail(ErrorKind::kUsage, "no-such-target", "--specialize adds programs for CPUs, but no CPU is a target",
         "leave it out: on a GPU each run's sizes choose among kernels; or --target cpu,cuda");
  made.tuning.database = tune_db;
  made.tuning.frozen = frozen;
  for (const std::string& shape : tune_shapes) made.tuning.shapes.push_back(parse_sizes(shape));
  made.tuning.seconds = tune_seconds;
  // Some of the time is for reading, building and writing.
  constexpr double kShareOfMeasuring = 0.6;
  made.tuning.limit = kShareOfMeasuring * budget.seconds;
  made.use_cache = !no_cache;
  made.extensions = parse_extensions(*this);
  return made;
}

std::string CompileFlags::traced() const {
  return functions.empty() ? model : parse_functions(functions).front().model;
}

std::vector<std::string> CompileFlags::files() const {
  std::vector<std::string> all = {model, train_config, tune_db};
  const auto add = [&](const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(rewrites), add(ops), add(weights_from);
  for (const std::string& text : functions)
    if (const size_t equals = text.find('='); equals != std::string::npos)
      all.push_back(text.substr(equals + 1));
  for (const auto& [place, file] : plugins) all.push_back(file);
  for (const std::string& folder : kernels) add(extend::kernel_files(folder));
  std::erase(all, "");
  return all;
}

}  // namespace stridec::cli
