#include "compiler/manifest_facts.h"

#include <filesystem>

#include "compiler/loop/value_range.h"
#include "compiler/tuned_schedules.h"

namespace stridec {
namespace {

package::FunctionFacts function_facts(const FunctionResult& made, const std::string& hash) {
  package::FunctionFacts facts{.program = made.programs().front(),
                               .declared = &made.loops,
                               .input_ranges = loop::input_ranges(made.loops),
                               .model_file = std::filesystem::path(made.source.model).filename().string(),
                               .model_sha256 = hash,
                               .tuning = tuning_facts(made),
                               .nodes = made.nodes.fates(*made.programs().front())};
  for (const frontend::DimRange& dim : made.dims) facts.dims[dim.name] = frontend::to_string(dim);
  for (const frontend::InputShape& shape : made.shapes) facts.shapes[shape.name] = frontend::to_string(shape);
  for (const frontend::InputValue& value : made.input_values)
    facts.input_values[value.name] = frontend::to_string(value);
  for (const codegen::cpu::Variant& variant : made.variants)
    if (!variant.when.is_const(1) && made.gpu_variants.empty() &&
        variant.target.name == made.variants.front().target.name)
      facts.specializations.push_back({variant.when, &variant.program});
  return facts;
}

}  // namespace

std::map<std::string, std::string> metadata_of(const CompileOptions& options, const Compilation& made) {
  std::map<std::string, std::string> all = options.metadata;
  for (const FunctionResult& function : made.functions)
    all.insert(function.facts.metadata.begin(), function.facts.metadata.end());
  return all;
}

package::ManifestFacts manifest_facts(const CompileOptions& options, const Compilation& made,
                                      const std::vector<std::string>& hashes) {
  package::ManifestFacts facts{.mode = options.mode,
                               .settings = options.settings,
                               .driver = made.device.driver,
                               .weights_file = options.weights_file,
                               .metadata = metadata_of(options, made)};
  for (size_t f = 0; f < made.functions.size(); ++f)
    facts.functions.push_back(function_facts(made.functions[f], hashes[f]));
  if (options.precision != "fp32") facts.settings["precision"] = options.precision;
  if (options.training) facts.settings["train"] = train::to_string(*options.training);
  for (const codegen::cpu::Variant& variant : made.main().variants)
    if (variant.when.is_const(1)) facts.variants.push_back(variant.target.name);
  for (const codegen::cuda::Variant& variant : made.main().gpu_variants)
    facts.gpu_variants.push_back(variant.target.name);
  return facts;
}

}  // namespace stridec
