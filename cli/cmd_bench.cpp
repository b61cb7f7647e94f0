#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench_compare.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/given_inputs.h"
#include "cli/kernel_costs.h"
#include "cli/library.h"
#include "cli/output.h"
#include "cli/reference_operators.h"
#include "compiler/base/counted.h"
#include "compiler/base/gpu_target.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/loop/provenance.h"
#include "compiler/tune/gpu_device.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string artifact, compare, dims, variant, function;
  std::vector<std::string> inputs, ops;
  int threads = 0;
  double seconds = 3;
  int most_rows = 20;
};

struct Subject {
  std::unique_ptr<Library> library;
  Sizes sizes;
  int row = 1;       // runs that are timed together
  double first = 0;  // seconds of the first run after the warm-up
  std::vector<double> times;
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  double at(double share) const {
    return times[std::min(times.size() - 1, static_cast<size_t>(share * static_cast<double>(times.size())))];
  }
};

// On a GPU: enough runs for the resolution of its clock, but no more launches than the driver's queue holds.
int runs_in_a_row(Library& library) {
  constexpr double kSample = 2e-3;
  constexpr int kLaunches = 500;
  library.timed_run();  // records the graph
  const int runs = static_cast<int>(kSample / std::max(library.timed_run(), 1e-6));
  return std::clamp(runs, 1,
                    std::max(1, kLaunches / std::max<int>(1, static_cast<int>(library.steps().size()))));
}

std::vector<Subject> make_subjects(const Flags& flags, const Globals& globals) {
  const OperatorFiles operators = read_operator_files(flags.ops);
  std::vector<Subject> subjects;
  for (const std::string& path : {flags.artifact, flags.compare})
    if (!path.empty())
      subjects.push_back({.library = std::make_unique<Library>(path, flags.threads, flags.variant)});
  for (Subject& subject : subjects) {
    use_references(*subject.library, operators, globals);
    // An artifact to compare with may be that of one function alone.
    if (&subject == &subjects.front() || subject.library->functions().size() > 1)
      subject.library->select(flags.function);
    // One of the two artifacts may be compiled for a fixed size where the other has a symbol.
    Sizes sizes = parse_sizes(flags.dims);
    std::erase_if(sizes, [&](const auto& size) {
      return !has_size(*subject.library, size.first) &&
             std::any_of(subjects.begin(), subjects.end(),
                         [&](const Subject& s) { return has_size(*s.library, size.first); });
    });
    with_inputs(*subject.library, flags.inputs, sizes, true, [&](GivenInputs given) {
      subject.sizes = std::move(given.sizes);
      subject.library->place(std::move(given.arrays));
      subject.library->warm_up();
      subject.first = subject.library->timed_run();
    });
    if (subject.library->gpu()) subject.row = runs_in_a_row(*subject.library);
  }
  return subjects;
}

struct Row {
  std::string name;
  double seconds;                  // of one run, the mean
  double least;                    // the same if every call were as fast as the fastest one of its kind
  int64_t calls;                   // in one run
  double flops, bytes;             // of one run
  double call_bytes;               // of one call
  std::string_view level;          // that holds the bytes of one call
  std::vector<std::string> nodes;  // the model's
  double compute, moving;          // seconds of one run at the machine's peak rates, for flops and for bytes
  // Share of the attainable rate: time at the tighter of the two limits, relative to the measured time.
  double roofline() const { return std::max(compute, moving) / std::max(seconds, 1e-12); }
  bool computes() const { return compute > moving; }
};

// One row per kernel of the manifest, sorted by decreasing time. Routines of the library appear by name.
std::vector<Row> profile(Subject& subject, const Sizes& sizes, const Roof& roof) {
  const int runs = std::clamp(static_cast<int>(0.5 / std::max(subject.median(), 1e-6)), 3, 200);
  subject.library->profile(true);
  for (int i = 0; i < runs; ++i) subject.library->timed_run();
  const auto steps = subject.library->steps();
  subject.library->profile(false);
  std::vector<Row> rows;
  std::vector<bool> seen(steps.size(), false);
  auto add = [&](Row row, const Library::Step& step) {
    row.seconds += static_cast<double>(step.nanoseconds) * 1e-9 / runs;
    const int64_t calls = (step.calls + runs / 2) / runs;
    row.least += static_cast<double>(step.minimum * calls) * 1e-9;
    row.calls += calls;
    return row;
  };
  const Json kernels = all_kernels(subject.library->function_manifest());
  for (const Json& kernel : kernels) {
    Row row{.name = kernel["name"], .nodes = kernel.value("nodes", std::vector<std::string>())};
    for (const Json& number : kernel["steps"]) {
      const auto step = number.get<size_t>();
      if (step >= steps.size() || steps[step].name != row.name) continue;
      row = add(std::move(row), steps[step]);
      seen[step] = true;
    }
    row.call_bytes = evaluate(kernel, "bytes", sizes);
    row.flops = evaluate(kernel, "flops", sizes) * static_cast<double>(row.calls);
    row.bytes = row.call_bytes * static_cast<double>(row.calls);
    row.compute = row.flops / roof.flops_of(kernel["schedule"].get<std::string>());
    const Roof::Level level = roof.level_of(row.call_bytes);
    row.level = level.name;
    row.moving = row.bytes / level.rate;
    rows.push_back(std::move(row));
  }
  const auto facts = steps_of(subject.library->function_manifest(), sizes);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (seen[i]) continue;
    Row row = add({.name = steps[i].name}, steps[i]);
    const auto known = facts.find(static_cast<int>(i));
    if (known != facts.end() && known->second.kernel == row.name) {
      const auto calls = static_cast<double>(row.calls);
      row.nodes = known->second.nodes;
      row.call_bytes = known->second.bytes;
      row.flops = known->second.flops * calls, row.bytes = known->second.bytes * calls;
      const Roof::Level level = roof.level_of(row.call_bytes);
      row.compute = row.flops / roof.flops_of("");
      row.level = level.name, row.moving = row.bytes / level.rate;
    }
    rows.push_back(std::move(row));
  }
  std::erase_if(rows, [](const Row& row) { return row.calls == 0 && row.seconds == 0; });
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

// Bandwidth of a run relative to the level that holds all its data between runs: "40 % of 51.3 that L2
// reaches". On a GPU only the rate of memory is known, which does not apply to data that stay in L2.
std::string share_of_bandwidth(double bytes, double seconds, const Roof& roof, const GpuTarget* gpu) {
  if (gpu && bytes <= gpu->l2_bytes) return "its data fit in L2, whose rate is not measured";
  const Roof::Level level = roof.level_of(bytes);
  const std::string most =
      cat(formatted(level.rate * 1e-9, "%.1f"), " that ", gpu ? "a copy" : level.name, " reaches");
  const double share = bytes / seconds / level.rate;
  if (share > 1) return cat("more than the ", most, ": kernels find data of earlier ones in caches");
  return cat(formatted(100 * share, "%.0f %% of "), most);
}

// Runs all subjects in turn, so that changes of the machine's speed reach all of them.
void time_in_turn(std::vector<Subject>& subjects, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  do {
    for (auto& subject : subjects) subject.times.push_back(subject.library->timed_run(subject.row));
  } while (elapsed() < seconds || subjects[0].times.size() < 5);
}

// The measurements of one artifact, with its times sorted.
struct Result {
  const Subject& subject;
  double median;  // seconds, of one run
  Roof roof;
  std::vector<Row> rows;
  double in_kernels = 0, flops = 0, bytes = 0, computing = 0;  // sums over the rows

  Library& library() const { return *subject.library; }
  const tune::GpuDevice* gpu() const { return library().gpu(); }
};

Result result_of(Subject& subject) {
  Result result{
      .subject = subject, .median = subject.median(), .roof = roof_of(*subject.library), .rows = {}};
  result.rows = profile(subject, subject.sizes, result.roof);
  for (const Row& row : result.rows) {
    result.in_kernels += row.seconds, result.flops += row.flops, result.bytes += row.bytes;
    result.computing += row.compute;
  }
  return result;
}

std::vector<KernelTime> times_of(const Result& result) {
  std::vector<KernelTime> times;
  for (const Row& row : result.rows) times.push_back({row.name, row.nodes, row.seconds});
  return times;
}

// `other`: the artifact of --compare, or null.
Json json_of(const Flags& flags, const Result& result, const Result* other) {
  const Subject& subject = result.subject;
  Json json = {{"artifact", flags.artifact},
               {"function", result.library().function()},
               {"model", result.library().function_manifest().value("model", Json::object())},
               {"sizes", subject.sizes},
               {"variant", result.library().variant()},
               {"threads", result.library().threads()},
               {"runs", subject.times.size()},
               {"median_seconds", result.median},
               {"minimum_seconds", subject.times.front()},
               {"p99_seconds", subject.at(0.99)},
               {"first_seconds", subject.first},
               {"flops", result.flops},
               {"bytes", result.bytes},
               {"peak", result.roof.json}};
  if (result.gpu()) {
    json.erase("threads");
    json["device"] = result.gpu()->name();
    json["enqueue_seconds"] = result.library().enqueue_seconds();
  }
  for (const Row& row : result.rows)
    json["kernels"].push_back({{"name", row.name},
                               {"seconds", row.seconds},
                               {"minimum_seconds", row.least},
                               {"calls", row.calls},
                               {"flops", row.flops},
                               {"bytes", row.bytes},
                               {"roofline", row.roofline()},
                               {"bound_by", row.computes() ? "compute" : "memory"},
                               {"level", row.level},
                               {"nodes", row.nodes}});
  if (other)
    json["compare"] = {{"artifact", flags.compare},
                       {"median_seconds", other->median},
                       {"kernels", joined_json(joined_times(times_of(result), times_of(*other)))}};
  return json;
}

// What ran where, and its times and rates as a whole.
void print_summary(const Flags& flags, const Result& result) {
  const Subject& subject = result.subject;
  const Library& library = result.library();
  const std::string sizes =
      join(subject.sizes, ", ", [](const auto& size) { return cat(size.first, " ", size.second); });
  const std::string where = result.gpu() ? cat(library.variant(), " on ", result.gpu()->name())
                                         : cat(library.variant(), ", ", counted(library.threads(), "thread"));
  const std::string what =
      library.functions().size() == 1 ? flags.artifact : cat(flags.artifact, ", ", library.function());
  std::printf("%s  %s%s%s; %zu runs\n", what.c_str(), sizes.c_str(), sizes.empty() ? "" : "; ", where.c_str(),
              subject.times.size() * static_cast<size_t>(subject.row));
  std::printf(" median %s   min %s   p99 %s   the first, warmed up, %s\n",
              human_seconds(result.median).c_str(), human_seconds(subject.times.front()).c_str(),
              human_seconds(subject.at(0.99)).c_str(), human_seconds(subject.first).c_str());
  const GpuTarget* target = result.gpu() ? &gpu_target(library.variant()) : nullptr;
  std::printf(" %.1f GFLOP/s (%.0f %% of %.0f that %s reach), %.1f GB/s (%s)\n",
              result.flops / result.median * 1e-9, 100 * result.computing / result.median,
              result.flops / std::max(result.computing, 1e-12) * 1e-9,
              target ? "its kernels' instructions" : "registers alone", result.bytes / result.median * 1e-9,
              share_of_bandwidth(result.bytes, result.median, result.roof, target).c_str());
}

std::string table_of(const Result& result, int most_rows) {
  std::vector<std::vector<std::string>> cells = {
      {"time", "share", "calls", "kernel", "GFLOP/s", "GB/s", "roofline", "of"}};
  for (const Row& row : result.rows) {
    if (static_cast<int>(cells.size()) > most_rows) break;
    cells.push_back(
        {human_seconds(row.seconds),
         formatted(100 * row.seconds / std::max({result.median, result.in_kernels, 1e-12}), "%.0f %%"),
         std::to_string(row.calls), row.name,
         formatted(row.flops / std::max(row.seconds, 1e-12) * 1e-9, "%.1f"),
         formatted(row.bytes / std::max(row.seconds, 1e-12) * 1e-9, "%.1f"),
         cat(formatted(100 * row.roofline(), "%.0f %% "), row.computes() ? "compute" : row.level),
         loop::nodes_of(row.nodes)});
  }
  return table(cells);
}

void print_kernels(const Result& result, int most_rows) {
  const std::string rows = table_of(result, most_rows);
  if (result.gpu())
    std::printf(
        "%s the host enqueues a run in %s; kernels are timed one by one, with the gaps between them\n",
        rows.c_str(), human_seconds(result.library().enqueue_seconds()).c_str());
  else if (result.in_kernels <= result.median)
    std::printf("%s beside kernels: %s (launches, guards)\n", rows.c_str(),
                human_seconds(result.median - result.in_kernels).c_str());
  else
    std::printf("%s kernels timed one by one take %s, in another run with the clock read around each\n",
                rows.c_str(), human_seconds(result.in_kernels).c_str());
}

void print_comparison(const Flags& flags, const Result& result, const Result& other) {
  const double median = other.median;
  const Subject &first = result.subject, &second = other.subject;
  const double noise = std::max(first.at(0.75) - first.at(0.25), second.at(0.75) - second.at(0.25));
  std::printf(" %s: median %s, %.3fx of the first; the difference is %s the noise (%s)\n",
              flags.compare.c_str(), human_seconds(median).c_str(), median / result.median,
              std::abs(median - result.median) > noise ? "more than" : "within",
              human_seconds(noise).c_str());
  const auto joined = joined_times(times_of(result), times_of(other));
  std::printf("%s", joined_text(joined, flags.most_rows).c_str());
}

int bench(const Flags& flags, const Globals& globals) {
  std::vector<Subject> subjects = make_subjects(flags, globals);
  time_in_turn(subjects, flags.seconds);
  const Result result = result_of(subjects[0]);
  std::optional<Result> other;
  if (subjects.size() > 1) other.emplace(result_of(subjects[1]));
  if (globals.json) {
    const Json json = json_of(flags, result, other ? &*other : nullptr);
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  print_summary(flags, result);
  print_kernels(result, flags.most_rows);
  const auto memory = result.library().memory();
  std::printf(" memory: arena %s, scratch %s, staging %s\n", human_bytes(memory.arena_bytes).c_str(),
              human_bytes(memory.scratch_bytes).c_str(), human_bytes(memory.staging_bytes).c_str());
  if (other) print_comparison(flags, result, *other);
  return 0;
}

}  // namespace

std::function<int()> declare_bench(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("artifact", flags->artifact, "the .so")->required();
  app.add_option(
         "--compare", flags->compare,
         "another .so, timed in turn with the first; kernels that compute the same nodes are compared")
      ->type_name("FILE");
  declare_drawn_inputs(app, flags->inputs, flags->dims);
  declare_library_flags(app, flags->threads, flags->function, flags->variant);
  declare_reference_operators(app, flags->ops);
  app.add_option("--seconds", flags->seconds, "how long to measure")->check(above_zero)->type_name("SECONDS");
  app.add_option("--rows", flags->most_rows, "kernels to list")->check(zero_or_more)->type_name("NUMBER");
  return [flags, &globals] { return bench(*flags, globals); };
}

}  // namespace stridec::cli
