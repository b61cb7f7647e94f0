#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/library.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

struct Flags {
  std::string artifact, dims, variant, function;
  std::vector<std::string> inputs, outputs;
  bool random = false;
  int threads = 0;
};

int run(const Flags& flags, const Globals& globals) {
  Library library(flags.artifact, flags.threads, flags.variant);
  library.select(flags.function);
  const auto output_files = assign_files(flags.outputs, names_of(library.outputs()), "output");
  std::vector<Array> results;
  with_inputs(library, flags.inputs, parse_sizes(flags.dims), flags.random,
              [&](const GivenInputs& given) { results = library.run(given.arrays); });
  nlohmann::ordered_json report = nlohmann::json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string shape =
        "[" + join(results[i].shape, ", ", [](int64_t d) { return std::to_string(d); }) + "]";
    if (!output_files[i].empty()) write_npy(output_files[i], results[i]);
    report.push_back({{"name", library.outputs()[i].name},
                      {"dtype", name(results[i].dtype)},
                      {"shape", results[i].shape},
                      {"file", output_files[i]}});
    if (!globals.json)
      std::printf(" %s  %s%s%s\n", printable(library.outputs()[i].name).c_str(),
                  std::string(name(results[i].dtype)).c_str(), shape.c_str(),
                  output_files[i].empty() ? "" : (" -> " + output_files[i]).c_str());
  }
  using Json = nlohmann::ordered_json;
  if (globals.json)
    std::printf("%s\n",
                Json{{"outputs", report}}.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_run(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("artifact", flags->artifact, "the .so")->required();
  app.add_option("-i,--input", flags->inputs, "name=file.npy, once for each input");
  app.add_option("-o,--output", flags->outputs, "name=file.npy, for each output to keep");
  app.add_flag("--random", flags->random, "random data for inputs that are not given");
  app.add_option("--dim", flags->dims,
                 "sizes for --random: batch=2,sequence=128 (others are as small as it serves)")
      ->join(',');
  app.add_option("--threads", flags->threads, "0: as many as the process may use");
  app.add_option("--function", flags->function, "entry point, instead of the first");
  app.add_option("--variant", flags->variant, "variant, instead of the best that this machine runs");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
