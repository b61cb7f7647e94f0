#include "cli/verified_artifact.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/base/pattern.h"
#include "compiler/base/printable.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/function_flags.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

// Drops what --state says about other functions of the artifact.
void keep_own_states(const Library& artifact, const Json& states, CompileOptions& options) {
  if (artifact.functions().size() == 1) return;
  CompileOptions all{.states = options.states};
  for (const std::string& name : artifact.functions()) all.functions.push_back({.name = name, .model = ""});
  options.states = flags_of(all, {.name = artifact.function(), .model = ""}).states;
  std::erase_if(options.states, [&](const frontend::StatePattern& pattern) {
    return std::ranges::none_of(states, [&](const Json& state) {
      return matches_pattern(pattern.input, state["name"].get<std::string>());
    });
  });
}

}  // namespace

void take_flags(const Library& artifact, const std::string& path, CompileOptions& options) {
  const Json whole = package::read_manifest(artifact.manifest(), path),
             manifest = artifact.function_manifest();
  const Json dims = manifest.value("dims", Json::object()), settings = whole.value("options", Json::object()),
             values = manifest.value("input_values", Json::object()),
             shapes = manifest.value("shapes", Json::object());
  keep_own_states(artifact, manifest["states"], options);
  options.method = manifest.value("method", "");
  options.input_values.clear();
  for (const auto& [name, value] : values.items())
    options.input_values.push_back(frontend::parse_input_value(cat(name, "=", value.get<std::string>())));
  options.shapes.clear();
  for (const auto& [name, shape] : shapes.items())
    options.shapes.push_back(frontend::parse_input_shape(cat(name, "=", shape.get<std::string>())));
  options.dims.clear();
  for (const auto& [name, range] : dims.items()) {
    // A name may contain a comma.
    options.dims.push_back(frontend::parse_dims("n=" + range.get<std::string>()).front());
    options.dims.back().name = name;
  }
  for (const auto& [name, value] : settings.items()) {
    const std::string text = value.get<std::string>();
    if (name == "train") {
      options.training = train::parse_settings(text);
      options.functions = {{artifact.function(), options.model}};
    } else if (name != "activation_memory_budget") {  // which changes no values
      (name == "precision" ? options.precision : options.settings[name]) = text;
    }
  }
}

void check_sizes(const std::vector<frontend::DimRange>& asked, const std::vector<frontend::DimRange>& served,
                 const loop::Program& program) {
  for (const auto& dim : asked) {
    if (std::any_of(program.symbols.begin(), program.symbols.end(), [&](const auto& symbol) {
          return loop::is_bound_before_run(program, symbol) && symbol.var.name() == dim.name;
        }))
      continue;
    const auto fixed =
        std::find_if(served.begin(), served.end(), [&](const auto& other) { return other.name == dim.name; });
    if (fixed == served.end())
      fail(ErrorKind::kUsage, "unknown-dim",
           cat("no input or state of the artifact has the size '", dim.name, "'"));
    if (fixed->lower != dim.lower || fixed->upper != dim.upper)
      fail(ErrorKind::kDoesNotFit, "sizes-differ",
           cat("the artifact is compiled for ", dim.name, "=", frontend::to_string(*fixed)));
  }
}

void check_states(const Library& artifact, const loop::Program& reference) {
  const Json manifest = artifact.function_manifest();
  const auto in_manifest = [&](const char* list, const std::string& name) {
    return std::ranges::any_of(manifest[list], [&](const Json& each) { return each["name"] == name; });
  };
  const auto quoted = [](const std::string& name) { return cat("'", printable(name), "'"); };
  std::vector<std::string> kept = buffer_names(reference, reference.inputs);
  std::erase_if(kept, [&](const std::string& name) { return !in_manifest("states", name); });
  if (kept.empty()) return;
  std::vector<std::string> returned = buffer_names(reference, reference.outputs);
  std::erase_if(returned, [&](const std::string& name) { return in_manifest("outputs", name); });
  fail(ErrorKind::kUsage, "missing-state",
       cat("the artifact keeps ", join(kept, ", ", quoted), " from run to run; the model has ",
           kept.size() == 1 ? "it as an input" : "them as inputs"),
       cat("give the --state that the artifact was compiled with: --state ", printable(kept[0]), "=OUTPUT",
           returned.empty() ? "" : cat(", where OUTPUT is one of ", join(returned, ", ", quoted))));
}

Tensors run_artifact(Library& library, const Given& given) {
  library.bind_context(given.context);
  library.reset_state();
  std::vector<Array> arrays;
  for (const auto& tensor : given.inputs) arrays.push_back({tensor.dtype, tensor.shape, tensor.bytes});
  Tensors outputs;
  for (auto& array : library.run(arrays))
    outputs.push_back({array.dtype, array.shape, std::move(array.bytes)});
  return outputs;
}

void take_variant(const Library& artifact, CompileOptions& options) {
  const std::string variant = artifact.variant();
  const bool known = std::ranges::count(cpu_targets(), variant, &CpuTarget::name) > 0;
  if (options.cpus.empty() && artifact.device().type == STRIDEC_DEVICE_CPU && known &&
      variant != cpu_target("native").name)
    options.cpus = {variant};
}

std::vector<std::string> buffer_names(const loop::Program& program, const std::vector<loop::BufferId>& ids) {
  std::vector<std::string> names;
  for (loop::BufferId id : ids) names.push_back(program[id].name);
  return names;
}

}  // namespace stridec::cli
