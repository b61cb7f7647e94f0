#include "compiler/tuned_schedules.h"

#include <algorithm>
#include <optional>

#include "compiler/base/sha256.h"
#include "compiler/function_flags.h"

namespace stridec {
namespace {

// Drops sizes that are outside the ranges of a program for specialised sizes.
std::vector<tune::Sizes> shapes_for(const loop::Program& program, const CompileOptions& options) {
  std::vector<tune::Sizes> shapes;
  for (const tune::Sizes& given : options.tuning.shapes) {
    tune::Sizes& sizes = shapes.emplace_back(sizes_of(program, given, options));
    for (const loop::Symbol& symbol : program.symbols) {
      const auto found = sizes.find(symbol.var.name());
      if (found != sizes.end() && !program.facts.bounds(symbol.var).contains(found->second))
        sizes.erase(found);
    }
  }
  return shapes;
}

// Returns nullopt unless the mode or a flag requests tuning.
template <class Target>
std::optional<tune::Result> tune_for(const loop::Program& program, const Target& target,
                                     const CompileOptions& options, bool measure, double seconds,
                                     const std::function<void()>& before_measuring) {
  const std::string& file = options.tuning.database;
  if (!measure && !options.tuning.frozen && file.empty()) return std::nullopt;
  tune::Database database(file.empty() ? tune::default_database() : file, options.tuning.frozen);
  tune::Options settings{.database = &database,
                         .measure = measure && seconds > 0,
                         .frozen = options.tuning.frozen,
                         .shapes = shapes_for(program, options),
                         .seconds = seconds,
                         .build = {.use_cache = options.use_cache},
                         .nvrtc = options.nvrtc,
                         .before_measuring = before_measuring};
  if (options.progress)
    settings.progress = [&](size_t done, size_t total, const std::string& kernel) {
      options.progress("tuning", static_cast<int64_t>(done), static_cast<int64_t>(total), kernel);
    };
  return tune::tune(program, target, settings);
}

bool measures(const CompileOptions& options) { return !options.tuning.frozen && max_autotune(options); }

schedule::Chosen keep(std::optional<tune::Result> result, FunctionResult& made) {
  if (!result) return {};
  made.tuned.push_back(std::move(result->kernels));
  return std::move(result->chosen);
}

}  // namespace

double measuring_seconds(const Tuning& tuning, double spent, size_t left) {
  const auto share = [&](double all) { return std::max(0.0, (all - spent) / static_cast<double>(left)); };
  const double seconds = tuning.seconds > 0 ? share(tuning.seconds) : tune::Options().seconds;
  return tuning.limit > 0 ? std::min(seconds, share(tuning.limit)) : seconds;
}

schedule::Chosen tuned(const loop::Program& program, const CpuTarget& target, const CompileOptions& options,
                       double seconds, const std::function<void()>& before_measuring, bool,
                       FunctionResult& made) {
  return keep(tune_for(program, target, options, measures(options), seconds, before_measuring), made);
}

schedule::Chosen tuned(const loop::Program& program, const GpuTarget& target, const CompileOptions& options,
                       double seconds, const std::function<void()>& before_measuring, bool first,
                       FunctionResult& made) {
  const bool wanted = measures(options), here = first || !made.gpu_problem.empty();
  auto result = tune_for(program, target, options, wanted && here, seconds, before_measuring);
  if (result && here) made.gpu_problem = result->problem;
  return keep(std::move(result), made);
}

package::TuningFacts tuning_facts(const FunctionResult& made) {
  package::TuningFacts facts;
  std::string lines;
  for (size_t v = 0; v < made.tuned.size(); ++v) {
    for (const tune::Tuned& kernel : made.tuned[v]) {
      if (kernel.origin == tune::Tuned::Origin::kDefault) continue;
      ++facts.entries;
      lines += to_string(kernel.entry) + "\n";
      // The manifest lists the kernels of the best variant.
      if (v > 0 || kernel.entry.microseconds <= 0) continue;
      for (const loop::NestId nest : kernel.nests)
        facts.measured[nest] = {.shape = kernel.entry.key.shape,
                                .microseconds = kernel.entry.microseconds,
                                .default_microseconds = kernel.entry.default_microseconds,
                                .tried = kernel.entry.tried};
    }
  }
  if (facts.entries) facts.sha256 = sha256(lines.data(), lines.size());
  return facts;
}

}  // namespace stridec
