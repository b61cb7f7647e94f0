#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "cli/given_inputs.h"
#include "cli/library.h"
#include "cli/npy.h"
#include "cli/npz.h"
#include "cli/output.h"
#include "cli/reference_operators.h"
#include "cli/written_files.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string artifact, dims, variant, function;
  std::vector<std::string> inputs, outputs, ops;
  bool random = false;
  int threads = 0;
  uint64_t seed = 0;
};

constexpr int64_t kShown = 16;  // elements of an output that are printed

std::string number_text(const Array& array, int64_t i) {
  const uint8_t* at = array.bytes.data() + i * byte_size(array.dtype);
  if (is_float(array.dtype)) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", read_float(array.dtype, at));
    return text;
  }
  return std::to_string(read_integer(array.dtype, at));
}

// "[[0.5, 2], [3, 4]]", from element `first` and dim `dim`.
std::string values_text(const Array& array, size_t dim = 0, int64_t first = 0) {
  if (dim == array.shape.size()) return number_text(array, first);
  int64_t stride = 1;
  for (size_t d = dim + 1; d < array.shape.size(); ++d) stride *= array.shape[d];
  std::string text = "[";
  for (int64_t i = 0; i < array.shape[dim]; ++i)
    text += cat(i == 0 ? "" : ", ", values_text(array, dim + 1, first + i * stride));
  return text + "]";
}

Json values_json(const Array& array) {
  Json values = Json::array();
  for (int64_t i = 0; i < array.count(); ++i) {
    const uint8_t* at = array.bytes.data() + i * byte_size(array.dtype);
    if (!is_float(array.dtype))
      values.push_back(read_integer(array.dtype, at));
    else if (const double value = read_float(array.dtype, at); std::isfinite(value))
      values.push_back(value);
    else
      values.push_back(number_text(array, i));
  }
  return values;
}

bool is_archive(const std::string& flag) {
  return flag.ends_with(".npz") && flag.find('=') == std::string::npos;
}

void write_archive(const std::string& path, const Library& library, const std::vector<Array>& results) {
  std::vector<std::pair<std::string, Array>> arrays;
  for (size_t i = 0; i < results.size(); ++i) arrays.emplace_back(library.outputs()[i].name, results[i]);
  write_npz(path, arrays);
}

// Fails before the work where a file of an output would replace one that is read, or another output's.
void check_files(const Flags& flags, const Library& library, const std::vector<std::string>& archives,
                 const std::vector<std::string>& arrays) {
  std::vector<std::string> inputs = files_of_artifact(flags.artifact, library.manifest());
  const std::vector<std::string> given = files_named(flags.inputs);
  inputs.insert(inputs.end(), given.begin(), given.end());
  inputs.insert(inputs.end(), flags.ops.begin(), flags.ops.end());
  const std::string all = "the outputs";
  std::vector<OutputFile> outputs;
  for (const std::string& path : archives)
    outputs.push_back({path, all, "choose another name: --output all.npz"});
  std::set<std::string> named;  // outputs of one name are one value
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::string& name = library.outputs()[i].name;
    if (arrays[i].empty() || !named.insert(name).second) continue;
    outputs.push_back({arrays[i], cat("output '", printable(name), "'"),
                       cat("choose another name: --output ", printable(name), "=y.npy")});
  }
  check_outputs(outputs, inputs);
  for (const OutputFile& output : outputs)
    if (output.what != all) check_extension(output.path, output.what, {".npy"}, "--output name=y.npy");
}

int run(const Flags& flags, const Globals& globals) {
  Library library(flags.artifact, flags.threads, flags.variant);
  library.select(flags.function);
  use_references(library, read_operator_files(flags.ops), globals);
  std::vector<std::string> archives, others;
  for (const std::string& flag : flags.outputs) (is_archive(flag) ? archives : others).push_back(flag);
  const auto output_files = assign_files(others, names_of(library.outputs()), "output");
  check_files(flags, library, archives, output_files);
  std::vector<Array> results;
  with_inputs(
      library, flags.inputs, parse_sizes(flags.dims), flags.random,
      [&](const GivenInputs& given) { results = library.run(given.arrays); }, flags.seed);
  for (const std::string& path : archives) write_archive(path, library, results);
  Json report = Json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const Array& result = results[i];
    const std::string& name = library.outputs()[i].name;
    const std::string shape =
        "[" + join(result.shape, ", ", [](int64_t d) { return std::to_string(d); }) + "]";
    std::vector<std::string> files = archives;
    if (!output_files[i].empty()) {
      write_npy(output_files[i], result);
      files.insert(files.begin(), output_files[i]);
    }
    report.push_back({{"name", name},
                      {"dtype", stridec::name(result.dtype)},
                      {"shape", result.shape},
                      {"file", output_files[i]}});
    const bool small = result.count() <= kShown;
    if (small) report.back()["values"] = values_json(result);
    if (globals.json || globals.quiet) continue;
    std::printf(" %s  %s%s%s%s\n", printable(name).c_str(), std::string(stridec::name(result.dtype)).c_str(),
                shape.c_str(), small ? cat(" = ", values_text(result)).c_str() : "",
                files.empty() ? "" : cat(" -> ", join(files, ", ")).c_str());
  }
  if (globals.json)
    std::printf("%s\n",
                Json{{"outputs", report}}.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_run(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("artifact", flags->artifact, "the .so")->required();
  app.add_option("-i,--input", flags->inputs,
                 "name=file.npy, once for each input; or all.npz, whose arrays have the inputs' names")
      ->type_name("[NAME=]FILE");
  app.add_option("-o,--output", flags->outputs, "name=file.npy, for each output to keep; or all.npz, for all")
      ->type_name("[NAME=]FILE");
  app.add_flag("--random", flags->random, "random data for inputs that are not given");
  app.add_option("--seed", flags->seed, "seed of the random data: the same number gives the same values")
      ->type_name("NUMBER");
  app.add_option("--dim", flags->dims,
                 "sizes of states, and for --random: batch=2,sequence=128 (default: the smallest that the "
                 "model allows)")
      ->join(',')
      ->type_name("NAME=SIZE,...");
  declare_library_flags(app, flags->threads, flags->function, flags->variant);
  declare_reference_operators(app, flags->ops);
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
