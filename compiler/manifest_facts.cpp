#include "compiler/manifest_facts.h"

#include <algorithm>
#include <filesystem>

#include "compiler/extend/kernel_file.h"
#include "compiler/extend/user_operator.h"
#include "compiler/loop/value_range.h"
#include "compiler/memory_budget.h"
#include "compiler/tuned_schedules.h"

namespace stridec {
namespace {

package::FunctionFacts function_facts(const FunctionResult& made, const std::string& hash) {
  package::FunctionFacts facts{.program = made.programs().front(),
                               .declared = &made.loops,
                               .input_ranges = loop::input_ranges(made.loops),
                               .model_file = std::filesystem::path(made.source.model).filename().string(),
                               .model_sha256 = hash,
                               .method = made.source.method,
                               .tuning = tuning_facts(made),
                               .nodes = made.nodes.fates(*made.programs().front())};
  for (const extend::RuleEffect& rule : made.rules)
    if (!rule.nodes.empty()) facts.rewritten.emplace_back(rule.rule, rule.nodes);
  for (const frontend::DimRange& dim : made.dims) facts.dims[dim.name] = frontend::to_string(dim);
  for (const frontend::InputShape& shape : made.shapes) facts.shapes[shape.name] = frontend::to_string(shape);
  for (const frontend::InputValue& value : made.input_values)
    facts.input_values[value.name] = frontend::to_string(value);
  if (!made.recomputation.recomputed.empty()) facts.recomputation = &made.recomputation;
  for (const codegen::cpu::Variant& variant : made.variants)
    if (!variant.when.is_const(1) && made.gpu_variants.empty() &&
        variant.target.name == made.variants.front().target.name)
      facts.specializations.push_back({variant.when, &variant.program});
  return facts;
}

package::ExtensionFacts extension_facts(const CompileOptions& options, const Compilation& made) {
  package::ExtensionFacts facts;
  const auto fired = [&](const extend::RuleFile& file, const extend::Rule& rule) {
    int count = 0;
    for (const FunctionResult& function : made.functions)
      for (const extend::RuleEffect& effect : function.rules)
        if (effect.file == file.path && effect.rule == rule.name) count += effect.fired;
    return count;
  };
  for (const extend::RuleFile& file : options.extensions.rules) {
    facts.rules.push_back({.file = std::filesystem::path(file.path).filename().string(),
                           .name = file.name,
                           .sha256 = file.sha256,
                           .version = file.version});
    for (const extend::Rule& rule : file.rules)
      facts.rules.back().rules.push_back({.name = rule.name,
                                          .check = std::string(extend::name(rule.check.kind)),
                                          .reason = rule.check.reason,
                                          .fired = fired(file, rule)});
  }
  for (const auto& file : options.extensions.operators) {
    facts.operators.push_back({.file = std::filesystem::path(file->path).filename().string(),
                               .name = file->name,
                               .sha256 = file->sha256,
                               .version = file->version});
    for (const extend::UserOperator& op : file->operators)
      facts.operators.back().operators.push_back(op.name);
  }
  for (const auto& file : options.extensions.kernels) {
    facts.kernels.push_back({.file = std::filesystem::path(file->path).filename().string(),
                             .name = file->name,
                             .sha256 = file->sha256});
    for (const extend::OwnKernel& kernel : file->kernels) {
      int chosen = 0;
      for (const FunctionResult& function : made.functions)
        chosen +=
            static_cast<int>(std::ranges::count_if(function.kernels, [&](const extend::KernelChoice& each) {
              return each.kernel == kernel.op.name && each.kind == extend::KernelChoice::Kind::kChosen;
            }));
      facts.kernels.back().kernels.emplace_back(kernel.op.name, chosen);
    }
  }
  for (const extend::UserPass& pass : options.extensions.passes)
    facts.passes.push_back(
        {.after = pass.after,
         .kind = pass.plugin ? "plugin" : "command",
         .command = pass.plugin ? std::filesystem::path(pass.command).filename().string() : pass.command,
         .sha256 = pass.sha256});
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
                               .metadata = metadata_of(options, made),
                               .extensions = extension_facts(options, made)};
  for (size_t f = 0; f < made.functions.size(); ++f)
    facts.functions.push_back(function_facts(made.functions[f], hashes[f]));
  // What is written beside the artifact does not change it.
  std::erase_if(facts.settings, [](const auto& setting) { return setting.first.starts_with("trace."); });
  if (options.precision != "fp32") facts.settings["precision"] = options.precision;
  if (options.memory_budget) facts.settings["activation_memory_budget"] = to_string(*options.memory_budget);
  if (options.training) facts.settings["train"] = train::to_string(*options.training);
  for (const codegen::cpu::Variant& variant : made.main().variants)
    if (variant.when.is_const(1)) facts.variants.push_back(variant.target.name);
  for (const codegen::cuda::Variant& variant : made.main().gpu_variants)
    facts.gpu_variants.push_back(variant.target.name);
  return facts;
}

}  // namespace stridec
