#include "compiler/manifest_facts.h"

#include <filesystem>

#include "compiler/loop/value_range.h"
#include "compiler/tuned_schedules.h"

namespace stridec {

package::ManifestFacts manifest_facts(const CompileOptions& options, const Compilation& made,
                                      const FileHash& model) {
  package::ManifestFacts facts{.declared = &made.loops,
                               .input_ranges = loop::input_ranges(made.loops),
                               .model_file = std::filesystem::path(options.model).filename().string(),
                               .model_sha256 = model.get(),
                               .mode = options.mode,
                               .settings = options.settings,
                               .driver = made.device.driver,
                               .weights_file = options.weights_file,
                               .tuning = tuning_facts(made)};
  for (const frontend::DimRange& dim : options.dims) facts.dims[dim.name] = frontend::to_string(dim);
  for (const frontend::InputValue& value : options.input_values)
    facts.input_values[value.name] = frontend::to_string(value);
  facts.metadata = options.metadata;
  if (options.precision != "fp32") facts.settings["precision"] = options.precision;
  for (const codegen::cpu::Variant& variant : made.variants) {
    if (variant.when.is_const(1))
      facts.variants.push_back(variant.target.name);
    else if (made.gpu_variants.empty() && variant.target.name == made.variants.front().target.name)
      facts.specializations.push_back({variant.when, &variant.program});
  }
  for (const codegen::cuda::Variant& variant : made.gpu_variants)
    facts.gpu_variants.push_back(variant.target.name);
  return facts;
}

}  // namespace stridec
