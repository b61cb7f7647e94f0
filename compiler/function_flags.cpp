#include "compiler/function_flags.h"

#include <algorithm>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/user_operator.h"
#include "compiler/frontend/parameters.h"
#include "compiler/kernel_host.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/train/train.h"
#include "compiler/tune/shapes.h"

namespace stridec {
namespace {

struct OwnName {
  std::string name;
  bool qualified;  // it named the function
};

// The name in the function's model that a flag's name stands for; none: it is for another function.
std::optional<OwnName> own_name(const std::string& given, const std::string& function,
                                const CompileOptions& options) {
  const size_t colon = given.find(':');
  const std::string prefix = given.substr(0, colon);
  const bool names_one =
      colon != std::string::npos && std::any_of(options.functions.begin(), options.functions.end(),
                                                [&](const FunctionModel& f) { return f.name == prefix; });
  if (!names_one) return OwnName{given, false};
  if (prefix != function) return std::nullopt;
  return OwnName{given.substr(colon + 1), true};
}

// Flags for the function; a qualified one replaces the others of its name.
template <class Flag>
std::vector<Flag> own_flags(const std::vector<Flag>& all, std::string Flag::* name,
                            const std::string& function, const CompileOptions& options) {
  std::vector<Flag> general, qualified;
  for (Flag flag : all) {
    const auto own = own_name(flag.*name, function, options);
    if (!own) continue;
    flag.*name = own->name;
    (own->qualified ? qualified : general).push_back(std::move(flag));
  }
  std::erase_if(general, [&](const Flag& flag) {
    return std::any_of(qualified.begin(), qualified.end(),
                       [&](const Flag& other) { return other.*name == flag.*name; });
  });
  general.insert(general.end(), qualified.begin(), qualified.end());
  return general;
}

std::vector<std::string> own_patterns(const std::vector<std::string>& all, const std::string& function,
                                      const CompileOptions& options) {
  std::vector<std::string> patterns;
  for (const std::string& given : all)
    if (const auto own = own_name(given, function, options)) patterns.push_back(own->name);
  return patterns;
}

template <class Flag>
std::vector<std::string> names_of(const std::vector<Flag>& flags, std::string Flag::* name) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back(flag.*name);
  return names;
}

// Throws for a name of `all` that every function lacks. `absent`: per function, by the function's own names.
void check_flag(const std::vector<std::string>& all, const std::string& flag,
                const std::vector<std::set<std::string>>& absent, const CompileOptions& options) {
  for (const std::string& given : all) {
    bool used = false;
    for (size_t f = 0; f < options.functions.size(); ++f) {
      const auto own = own_name(given, options.functions[f].name, options);
      used |= own && !absent[f].contains(cat(flag, " ", own->name));
    }
    if (!used)
      fail(ErrorKind::kUsage, "unknown-name", cat(flag, ": no function's model has '", given, "'"),
           cat("the functions are ",
               join(options.functions, ", ", [](const FunctionModel& f) { return f.name; }),
               "; 'stridec inspect' lists what their models have"));
  }
}

// Throws for a weight that --refit makes a parameter of one function, and cannot of another one that it
// applies to: they would run with different values after a replacement. `refit`: per function, its patterns.
void check_parameters(const std::vector<graph::Graph>& graphs,
                      const std::vector<std::vector<std::string>>& refit, const CompileOptions& options) {
  std::map<std::string, size_t> parameters;  // the first function that has it
  for (size_t f = 0; f < graphs.size(); ++f)
    for (const graph::Value& value : graphs[f].values)
      if (value.replaceable) parameters.emplace(value.name, f);
  for (size_t f = 0; f < graphs.size(); ++f)
    for (const graph::Value& value : graphs[f].values) {
      if (!value.data || value.replaceable || !frontend::selects(refit[f], value.name, value.type)) continue;
      const auto found = parameters.find(value.name);
      if (found == parameters.end() || found->second == f) continue;
      const std::string &name = options.functions[found->second].name, &other = options.functions[f].name;
      fail(ErrorKind::kDoesNotFit, "parameter-is-constant",
           cat("--refit: weight '", value.name, "' of function '", other,
               "' cannot be replaced, since its value decides sizes or operations; function '", name,
               "' shares it"),
           cat("leave it out, or write --refit ", name, ":", value.name,
               " to replace it for this function alone"));
    }
}

// Throws an Error if anything prevents compilation.
frontend::Imported import_whole(const std::string& file, const frontend::ImportOptions& options) {
  frontend::Imported imported = frontend::import_file(file, options);
  if (!imported.problems.empty()) throw frontend::as_error(imported.problems, file);
  return imported;
}

// A function of a training. The first one makes the plan, from the training form.
frontend::Imported import_trained(const FunctionModel& function, frontend::ImportOptions own,
                                  const train::Settings& settings, std::optional<train::Plan>& plan) {
  const auto import_form = [&](bool training_form) {
    own.training = training_import(settings, training_form);
    return import_whole(function.model, own);
  };
  const bool training_form = train::uses_training_form(function.name);
  std::optional<frontend::Imported> imported;
  if (!plan) {
    imported = import_form(true);
    plan = train::make_plan(imported->graph, settings);
  }
  if (!imported || !training_form) imported = import_form(training_form);
  imported->graph = train::make_function(std::move(imported->graph), function.name, *plan, settings);
  return *std::move(imported);
}

bool has_size(const loop::Program& program, const std::string& name) {
  return std::any_of(program.symbols.begin(), program.symbols.end(), [&](const loop::Symbol& symbol) {
    return loop::is_bound_before_run(program, symbol) && symbol.var.name() == name;
  });
}

}  // namespace

frontend::TrainingImport training_import(const train::Settings& settings, bool training_form) {
  return {.trainable = settings.trainable,
          .frozen = settings.frozen,
          .apart = settings.lora ? settings.lora->targets : std::vector<std::string>(),
          .training_form = training_form};
}

FunctionFlags flags_of(const CompileOptions& options, const FunctionModel& function) {
  const std::string& name = function.name;
  return {.dims = own_flags(options.dims, &frontend::DimRange::name, name, options),
          .shapes = own_flags(options.shapes, &frontend::InputShape::name, name, options),
          .input_values = own_flags(options.input_values, &frontend::InputValue::name, name, options),
          .states = own_flags(options.states, &frontend::StatePattern::input, name, options),
          .refit = own_patterns(options.refit, name, options),
          .layouts = own_flags(options.layouts, &Layout::name, name, options)};
}

void check_used(const CompileOptions& options, const std::vector<std::set<std::string>>& absent) {
  if (options.functions.empty()) return;  // the import throws
  check_flag(names_of(options.dims, &frontend::DimRange::name), "--dim", absent, options);
  check_flag(names_of(options.shapes, &frontend::InputShape::name), "--shape", absent, options);
  check_flag(names_of(options.input_values, &frontend::InputValue::name), "--input-value", absent, options);
  check_flag(names_of(options.states, &frontend::StatePattern::input), "--state", absent, options);
  check_flag(options.refit, "--refit", absent, options);
}

std::vector<graph::Graph> import_functions(const CompileOptions& options, Compilation& made) {
  std::vector<graph::Graph> graphs;
  std::vector<std::set<std::string>> absent;
  std::vector<std::vector<std::string>> refit;
  const bool several = !options.functions.empty();
  std::optional<train::Plan> plan;
  const extend::Operators operators(options.extensions.operators, kernel_host());
  for (const FunctionModel& function : options.entry_points()) {
    if (options.progress) options.progress("reading", 0, 0, function.model);
    FunctionFlags flags = flags_of(options, function);
    std::set<std::string>& lacks = absent.emplace_back();
    frontend::Imported imported;
    try {
      frontend::ImportOptions own{.dims = flags.dims,
                                  .shapes = flags.shapes,
                                  .input_values = flags.input_values,
                                  .states = flags.states,
                                  .refit = flags.refit,
                                  .sizes_stay_open = options.sizes_stay_open,
                                  .name = options.name,
                                  .method = function.method,
                                  .torch_random = torch_random(options),
                                  .weights = options.weights.get(),
                                  .absent = several ? &lacks : nullptr,
                                  .operators = &operators};
      imported = options.training ? import_trained(function, own, *options.training, plan)
                                  : import_whole(function.model, own);
    } catch (Error& error) {
      if (error.diagnostic.where.file.empty() && error.diagnostic.kind != ErrorKind::kUsage)
        error.diagnostic.where.file = function.model;
      throw;
    }
    if (!function.name.empty()) imported.graph.name = function.name;
    std::erase_if(flags.dims, [&](const auto& dim) { return lacks.contains(cat("--dim ", dim.name)); });
    std::erase_if(flags.shapes,
                  [&](const auto& shape) { return lacks.contains(cat("--shape ", shape.name)); });
    std::erase_if(flags.input_values,
                  [&](const auto& value) { return lacks.contains(cat("--input-value ", value.name)); });
    refit.push_back(std::move(flags.refit));
    made.functions.push_back({.source = function,
                              .dims = std::move(flags.dims),
                              .shapes = std::move(flags.shapes),
                              .input_values = std::move(flags.input_values),
                              .summary = std::move(imported.summary),
                              .facts = std::move(imported.facts),
                              .files = std::move(imported.files),
                              .nodes = NodeTrace(std::move(imported.nodes)),
                              .warnings = std::move(imported.warnings)});
    graphs.push_back(std::move(imported.graph));
  }
  check_used(options, absent);
  if (several) check_parameters(graphs, refit, options);
  return graphs;
}

void declare_layouts(const CompileOptions& options, std::span<const FunctionModel> functions,
                     std::span<loop::Program* const> programs) {
  std::vector<std::set<std::string>> absent(programs.size());
  for (size_t f = 0; f < programs.size(); ++f)
    for (const Layout& layout : flags_of(options, functions[f]).layouts)
      if (!declare_layout(*programs[f], layout)) absent[f].insert(cat("--layout ", layout.name));
  if (!options.functions.empty())
    check_flag(names_of(options.layouts, &Layout::name), "--layout", absent, options);
  else if (!absent.empty() && !absent[0].empty())
    fail(ErrorKind::kUsage, "unknown-name",
         cat(*absent[0].begin(), ": the model has no such input, output or state"),
         cat("it has ", join(value_names(*programs[0]), ", ")));
}

loop::SymbolValues sizes_of(const loop::Program& program, const loop::SymbolValues& sizes,
                            const CompileOptions& options) {
  if (options.functions.empty()) return sizes;
  loop::SymbolValues general, qualified;
  for (const auto& [given, size] : sizes) {
    const auto own = own_name(given, program.name, options);
    if (own && has_size(program, own->name)) (own->qualified ? qualified : general)[own->name] = size;
  }
  qualified.merge(general);
  return qualified;
}

void check_sizes(const CompileOptions& options, std::span<const loop::Program* const> programs) {
  const auto each = [&](const char* flag, const std::vector<loop::SymbolValues>& all) {
    for (const loop::SymbolValues& sizes : all)
      for (const auto& [given, size] : sizes) {
        const bool known = std::any_of(programs.begin(), programs.end(), [&](const loop::Program* program) {
          return !sizes_of(*program, {{given, size}}, options).empty();
        });
        if (!known)
          fail(ErrorKind::kUsage, "unknown-symbol", cat(flag, ": '", given, "' is not a size of a function"),
               "'stridec inspect' lists the sizes of a model's inputs");
      }
  };
  each("--tune-shape", options.tuning.shapes);
  each("--specialize", options.specialize);
  for (const loop::Program* program : programs) {
    std::vector<tune::Sizes> shapes;
    for (const tune::Sizes& given : options.tuning.shapes)
      shapes.push_back(sizes_of(*program, given, options));
    tune::check_shapes(*program, shapes);
  }
}

}  // namespace stridec
