#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/cupti.h"
#include "cli/given_inputs.h"
#include "cli/gpu_profile.h"
#include "cli/kernel_costs.h"
#include "cli/library.h"
#include "cli/output.h"
#include "cli/perf_counters.h"
#include "cli/profile_rows.h"
#include "cli/reference_operators.h"
#include "cli/written_files.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 5, kMostRuns = 100000;
constexpr int kTracedRuns = 20;  // in the file
constexpr int kCountedRuns = 20;

struct Flags {
  std::string artifact, dims, variant, function, trace, group = "kernel", sort = "total";
  std::vector<std::string> inputs, ops;
  int threads = 0, runs = 0, most_rows = 30;
  double seconds = 2;
  bool counters = false, cupti = false;
};

// Collects events of one thread's runs and steps.
struct Recorder {
  Samples samples;
  int64_t run_begin = 0, step_begin = 0, in_steps = 0;

  static void add(void* user, const stridec_event* event) {
    auto& r = *static_cast<Recorder*>(user);
    if (event->kind == STRIDEC_EVENT_RUN && !event->ends) r.run_begin = event->time, r.in_steps = 0;
    if (event->kind == STRIDEC_EVENT_STEP && !event->ends) r.step_begin = event->time;
    if (event->kind == STRIDEC_EVENT_STEP && event->ends) {
      r.samples.of_steps[event->step].push_back(event->time - r.step_begin);
      r.in_steps += event->time - r.step_begin;
    }
    if (event->kind == STRIDEC_EVENT_RUN && event->ends) {
      r.samples.runs.push_back(event->time - r.run_begin);
      r.samples.between.push_back(r.samples.runs.back() - r.in_steps);
    }
  }
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<double> timed_runs(Library& library, int runs, double seconds) {
  std::vector<double> times;
  const auto start = Clock::now();
  const auto more = [&] {
    const auto done = static_cast<int>(times.size());
    if (runs > 0) return done < runs;
    return done < kLeastRuns ||
           (done < kMostRuns && std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  };
  while (more()) times.push_back(library.timed_run());
  return times;
}

struct Measured {
  Sizes sizes;
  Samples samples;
  double plain = 0, traced = 0;            // median seconds of a run without and with the trace
  std::unique_ptr<PerfCounters> counters;  // null: not asked for
  size_t in_graphs = 0;                    // kernels that CUPTI has seen in recorded graphs, of all runs
};

// The parts of other runs than those whose time is taken: reading the counters takes time.
void count_runs(Library& library, const Flags& flags, PerfCounters& counters) {
  const stridec_trace_options options = {.struct_size = sizeof options,
                                         .flags = STRIDEC_TRACE_PARTS,
                                         .sink = PerfCounters::sink,
                                         .user = &counters};
  library.trace(&options);
  library.timed_run();  // opens the counters of each thread
  counters.reset();
  timed_runs(library, flags.runs > 0 ? flags.runs : kCountedRuns, 0);
  library.trace(nullptr);
}

// The device's seconds of each run, while kernels are launched one by one.
std::vector<double> recorded_runs(Library& library, int runs, double seconds, GpuRecorder& recorder) {
  const stridec_trace_options options = {.struct_size = sizeof options,
                                         .flags = STRIDEC_TRACE_KERNELS,
                                         .sink = GpuRecorder::sink,
                                         .user = &recorder};
  library.profile(true);
  library.trace(&options);
  std::vector<double> times = timed_runs(library, runs, seconds);
  library.trace(nullptr);
  library.profile(false);
  return times;
}

// A run whose kernels are launched one by one, as CUPTI and the driver's events see it: which kernel of other
// runs is of which step.
struct KnownRun {
  std::vector<Cupti::Kernel> by_cupti;
  GpuRecorder::Run by_events;
};

KnownRun known_run(Library& library, Cupti& cupti) {
  GpuRecorder recorder;
  cupti.take();
  recorded_runs(library, 1, 0, recorder);
  KnownRun known{.by_cupti = cupti.take(), .by_events = {}};
  if (!recorder.runs().empty()) known.by_events = recorder.runs().begin()->second;
  library.timed_run();
  cupti.take();
  return known;
}

// Runs as they are without a profile, which may be replays of a graph.
std::vector<double> replayed_runs(Library& library, const Flags& flags, Cupti& cupti, Measured& out) {
  const KnownRun known = known_run(library, cupti);
  std::vector<double> times = timed_runs(library, flags.runs, flags.seconds);
  const std::vector<Cupti::Kernel> kernels = cupti.take();
  out.in_graphs = static_cast<size_t>(std::ranges::count(kernels, true, &Cupti::Kernel::in_graph));
  out.samples =
      kernel_samples(steps_of_kernels(kernels, known.by_cupti, known.by_events, times.size()), times);
  return times;
}

std::vector<std::string> step_names(const Library& library) {
  std::vector<std::string> names;
  for (const Library::Step& step : library.steps()) names.push_back(step.name);
  return names;
}

// Removes a trace that is not finished.
class UnfinishedTrace {
 public:
  explicit UnfinishedTrace(const std::string& path) : path_(path) {}
  ~UnfinishedTrace() {
    std::error_code error;
    if (!path_.empty() && std::filesystem::is_regular_file(path_, error))
      std::filesystem::remove(path_, error);
  }
  UnfinishedTrace(const UnfinishedTrace&) = delete;
  UnfinishedTrace& operator=(const UnfinishedTrace&) = delete;
  void finish() { path_.clear(); }

 private:
  std::string path_;
};

// The first runs.
void write_trace(Library& library, const Flags& flags, const Sizes& sizes, Cupti* cupti) {
  const stridec_trace_options options = {
      .struct_size = sizeof options,
      .flags = STRIDEC_TRACE_PARTS | (library.gpu() ? STRIDEC_TRACE_COPIES | STRIDEC_TRACE_KERNELS : 0u),
      .path = flags.trace.c_str()};
  const bool apart = library.gpu() && !cupti;
  const KnownRun known = cupti ? known_run(library, *cupti) : KnownRun();
  if (apart) library.profile(true);
  library.trace(&options);
  UnfinishedTrace file(flags.trace);
  const size_t runs =
      timed_runs(library, flags.runs > 0 ? std::min(flags.runs, kTracedRuns) : kTracedRuns, 0).size();
  library.trace(nullptr);
  if (apart) library.profile(false);
  if (cupti && std::filesystem::is_regular_file(flags.trace))
    add_to_trace(flags.trace, steps_of_kernels(cupti->take(), known.by_cupti, known.by_events, runs),
                 cupti->to_host(), step_names(library), steps_of(library.function_manifest(), sizes));
  file.finish();
}

// The times of runs with the profile.
std::vector<double> profiled_runs(Library& library, const Flags& flags, Cupti* cupti, Measured& out) {
  if (cupti) return replayed_runs(library, flags, *cupti, out);
  if (library.gpu()) {
    GpuRecorder recorder;
    std::vector<double> times = recorded_runs(library, flags.runs, flags.seconds, recorder);
    out.samples = kernel_samples(recorder.runs(), times);
    return times;
  }
  Recorder recorder;
  const stridec_trace_options options = {
      .struct_size = sizeof options, .sink = Recorder::add, .user = &recorder};
  library.trace(&options);
  std::vector<double> times = timed_runs(library, flags.runs, flags.seconds);
  library.trace(nullptr);
  out.samples = std::move(recorder.samples);
  return times;
}

void check_device(const Library& library, const Flags& flags) {
  const bool gpu = library.device().type == STRIDEC_DEVICE_CUDA;
  if (gpu && flags.counters)
    fail(ErrorKind::kUnsupported, "no-counters",
         "--counters counts on processors, and the kernels run on a GPU",
         "--variant names a CPU variant of the artifact");
  if (!gpu && flags.cupti)
    fail(ErrorKind::kUsage, "cupti", "--cupti is for kernels on a GPU, and the artifact runs on the CPU");
}

Measured measure(Library& library, const Flags& flags, Cupti* cupti) {
  check_device(library, flags);
  Measured out;
  with_inputs(library, flags.inputs, parse_sizes(flags.dims), true, [&](GivenInputs given) {
    out.sizes = std::move(given.sizes);
    library.place(std::move(given.arrays));
    library.warm_up();
    library.timed_run();
  });
  if (!flags.trace.empty()) write_trace(library, flags, out.sizes, cupti);
  if (flags.counters) {
    out.counters = std::make_unique<PerfCounters>();
    count_runs(library, flags, *out.counters);
  }
  // Timed without the trace before and after it, since the load of the machine varies.
  std::vector<double> plain = timed_runs(library, flags.runs, flags.seconds / 4);
  out.traced = median(profiled_runs(library, flags, cupti, out));
  const std::vector<double> later = timed_runs(library, flags.runs, flags.seconds / 4);
  plain.insert(plain.end(), later.begin(), later.end());
  out.plain = median(std::move(plain));
  return out;
}

void sort_rows(std::vector<ProfileRow>& rows, const std::string& by) {
  const auto key = [&](const ProfileRow& row) -> double {
    if (by == "calls") return static_cast<double>(row.calls.size());
    if (by == "mean") return row.mean();
    if (by == "p50") return static_cast<double>(row.percentile(0.5));
    if (by == "p99") return static_cast<double>(row.percentile(0.99));
    if (by == "flops") return row.flops;
    if (by == "bytes") return row.bytes;
    return static_cast<double>(row.total);
  };
  std::sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    if (by == "name") return a.name < b.name;
    const double x = key(a), y = key(b);
    return x != y ? x > y : a.name < b.name;
  });
}

// What a thread of the row's steps counted; `thread` -1: all threads.
Counts counts_of(const PerfCounters& counters, const ProfileRow& row, int thread = -1) {
  Counts sums = {};
  for (const int step : row.steps) {
    const std::vector<Counts> threads = counters.of_step(step);
    for (size_t t = 0; t < threads.size(); ++t)
      for (size_t i = 0; i < sums.size() && (thread < 0 || thread == static_cast<int>(t)); ++i)
        sums[i] += threads[t][i];
  }
  return sums;
}

// By name; with instructions per cycle where both are counted.
Json json_of_counts(const PerfCounters& counters, const Counts& counts) {
  Json json = Json::object();
  for (size_t i = 0; i < counters.names().size(); ++i)
    json[counters.names()[i]] = static_cast<int64_t>(counts[i] + 0.5);
  if (json.contains("cycles") && json.contains("instructions") && json["cycles"] > 0)
    json["instructions_per_cycle"] = json["instructions"].get<double>() / json["cycles"].get<double>();
  return json;
}

Json json_of_counters(const PerfCounters& counters, const ProfileRow& row) {
  Json json = json_of_counts(counters, counts_of(counters, row));
  json["threads"] = Json::array();
  const size_t threads = row.steps.empty() ? 0 : counters.of_step(row.steps.front()).size();
  for (size_t t = 0; t < threads; ++t)
    json["threads"].push_back(json_of_counts(counters, counts_of(counters, row, static_cast<int>(t))));
  return json;
}

Json json_of_row(const ProfileRow& row) {
  Json json = {{"name", row.name},
               {"calls", row.calls.size()},
               {"nanoseconds", row.total},
               {"mean_nanoseconds", row.mean()},
               {"p50_nanoseconds", row.percentile(0.5)},
               {"p99_nanoseconds", row.percentile(0.99)},
               {"steps", row.steps},
               {"nodes", row.nodes},
               {"flops", row.flops},
               {"bytes", row.bytes}};
  if (row.roofline() > 0) {
    json["roofline"] = row.roofline();
    json["bound_by"] = row.compute > row.moving ? "compute" : "memory";
    json["level"] = row.level;
  }
  return json;
}

void print_json(const Flags& flags, const Library& library, const Measured& measured, const Roof& roof,
                const std::vector<ProfileRow>& rows, int64_t total) {
  Json json = {{"artifact", flags.artifact},
               {"function", library.function()},
               {"model", library.function_manifest().value("model", Json::object())},
               {"sizes", measured.sizes},
               {"variant", library.variant()},
               {"runs", measured.samples.runs.size()},
               {"nanoseconds", total},
               {"median_seconds", measured.plain},
               {"traced_median_seconds", measured.traced},
               {"peak", roof.json},
               {"group", flags.group},
               {"rows", Json::array()}};
  if (tune::GpuDevice* gpu = library.gpu())
    json["device"] = gpu->name();
  else
    json["threads"] = library.threads();
  if (flags.cupti) json["kernels_in_graphs"] = measured.in_graphs;
  if (measured.counters) json["counted_runs"] = measured.counters->runs();
  for (const ProfileRow& row : rows) {
    json["rows"].push_back(json_of_row(row));
    if (measured.counters) json["rows"].back()["counters"] = json_of_counters(*measured.counters, row);
  }
  std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

std::string seconds_of(double nanoseconds) { return human_seconds(nanoseconds * 1e-9); }

std::vector<std::string> cells_of(const ProfileRow& row, double runs, double total) {
  const double seconds = static_cast<double>(row.total) * 1e-9;
  const auto rate = [&](double amount) {
    return amount > 0 && seconds > 0 ? formatted(amount / seconds * 1e-9, "%.1f") : "-";
  };
  return {seconds_of(static_cast<double>(row.total) / runs),
          formatted(100 * static_cast<double>(row.total) / std::max(total, 1.0), "%.1f %%"),
          formatted(static_cast<double>(row.calls.size()) / runs, "%.4g"),
          seconds_of(row.mean()),
          seconds_of(static_cast<double>(row.percentile(0.5))),
          seconds_of(static_cast<double>(row.percentile(0.99))),
          rate(row.flops),
          rate(row.bytes),
          row.roofline() > 0 ? cat(formatted(100 * row.roofline(), "%.0f %% "),
                                   row.compute > row.moving ? "compute" : row.level)
                             : "-",
          printable(row.name)};
}

// Puts columns of counters before that of the name: counts of a run, with K, M or G.
void add_counters(std::vector<std::vector<std::string>>& cells, const PerfCounters& counters,
                  const std::vector<ProfileRow>& rows) {
  const auto short_count = [](double count) {
    const char* const units[] = {"", " K", " M", " G"};
    size_t unit = 0;
    for (; count >= 1000 && unit < 3; ++unit) count /= 1000;
    return cat(formatted(count, "%.3g"), units[unit]);
  };
  for (size_t row = 0; row < cells.size(); ++row) {
    const Counts counts = row ? counts_of(counters, rows[row - 1]) : Counts{};
    const auto add = [&](const std::string& cell) { cells[row].insert(cells[row].end() - 1, cell); };
    const Json json = json_of_counts(counters, counts);
    if (json.contains("cycles") && json.contains("instructions"))
      add(!row                                      ? "IPC"
          : json.contains("instructions_per_cycle") ? formatted(json["instructions_per_cycle"], "%.2f")
                                                    : "-");
    for (size_t i = 0; i < counters.names().size(); ++i) {
      std::string name = counters.names()[i];
      std::replace(name.begin(), name.end(), '_', ' ');
      add(row ? short_count(counts[i] / static_cast<double>(std::max<int64_t>(counters.runs(), 1))) : name);
    }
  }
}

// What the measuring itself changed.
std::string disturbance(const Flags& flags, const Library& library, const Measured& measured) {
  const std::string plain = human_seconds(measured.plain), traced = human_seconds(measured.traced);
  if (!library.gpu())
    return cat(" time and calls are per run; a run without this profile has a median of ", plain,
               ", with it ", traced, "\n");
  if (flags.cupti)
    return cat(" time and calls are per run, by CUPTI, which slows all runs; ", measured.in_graphs,
               " kernels of all runs were in recorded graphs\n");
  return cat(
      " time and calls are per run, by the device; kernels are launched one by one: such a run has a "
      "median of ",
      traced, ", a run without this profile ", plain, "\n");
}

void print_text(const Flags& flags, const Library& library, const Measured& measured,
                const std::vector<ProfileRow>& rows, int64_t total) {
  const auto runs = static_cast<double>(measured.samples.runs.size());
  const std::string sizes =
      join(measured.sizes, ", ", [](const auto& size) { return cat(size.first, " ", size.second); });
  std::printf("%s  %s%s%s, %s; %.0f runs of %s on average\n",
              library.functions().size() == 1 ? flags.artifact.c_str()
                                              : cat(flags.artifact, ", ", library.function()).c_str(),
              sizes.c_str(), sizes.empty() ? "" : "; ", library.variant().c_str(),
              (library.gpu() ? library.gpu()->name() : counted(library.threads(), "thread")).c_str(), runs,
              seconds_of(static_cast<double>(total) / runs).c_str());
  std::vector<std::vector<std::string>> cells = {
      {"time", "share", "calls", "mean", "p50", "p99", "GFLOP/s", "GB/s", "roofline", flags.group}};
  for (const ProfileRow& row : rows) {
    if (static_cast<int>(cells.size()) > flags.most_rows) break;
    cells.push_back(cells_of(row, runs, static_cast<double>(total)));
  }
  if (measured.counters) add_counters(cells, *measured.counters, rows);
  std::printf("%s", table(cells).c_str());
  if (cells.size() - 1 < rows.size())
    std::printf(" and %zu more; --rows lists them\n", rows.size() - (cells.size() - 1));
  std::printf("%s", disturbance(flags, library, measured).c_str());
  if (!flags.trace.empty())
    std::printf(" %s has a trace for ui.perfetto.dev or chrome://tracing\n", flags.trace.c_str());
}

Group group_of(const std::string& name) {
  return name == "step"    ? Group::kStep
         : name == "node"  ? Group::kNode
         : name == "scope" ? Group::kScope
                           : Group::kKernel;
}

// Fails before the work where the trace would replace a file that is read. It may go to a pipe or a device.
void check_trace_file(const Flags& flags, const Library& library) {
  if (std::filesystem::is_other(flags.trace)) return;
  std::vector<std::string> inputs = files_of_artifact(flags.artifact, library.manifest());
  const std::vector<std::string> given = files_named(flags.inputs);
  inputs.insert(inputs.end(), given.begin(), given.end());
  inputs.insert(inputs.end(), flags.ops.begin(), flags.ops.end());
  check_outputs({{flags.trace, "the trace", "choose another name: --trace trace.json"}}, inputs);
  check_extension(flags.trace, "the trace", {".json"}, "--trace trace.json");
}

int profile(const Flags& flags, const Globals& globals) {
  const auto cupti = flags.cupti ? std::make_unique<Cupti>() : nullptr;
  Library library(flags.artifact, flags.threads, flags.variant);
  library.select(flags.function);
  check_trace_file(flags, library);
  use_references(library, read_operator_files(flags.ops), globals);
  const Measured measured = measure(library, flags, cupti.get());
  const Roof roof = roof_of(library);
  std::vector<ProfileRow> rows =
      profile_rows(measured.samples, steps_of(library.function_manifest(), measured.sizes),
                   step_names(library), group_of(flags.group), roof);
  sort_rows(rows, flags.sort);
  int64_t total = 0;
  for (const int64_t run : measured.samples.runs) total += run;
  if (globals.json)
    print_json(flags, library, measured, roof, rows, total);
  else
    print_text(flags, library, measured, rows, total);
  return 0;
}

}  // namespace

std::function<int()> declare_profile(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.add_option("artifact", flags->artifact, "the .so")->required();
  declare_drawn_inputs(app, flags->inputs, flags->dims);
  declare_library_flags(app, flags->threads, flags->function, flags->variant);
  declare_reference_operators(app, flags->ops);
  app.add_option("--seconds", flags->seconds, "how long to measure")->check(above_zero)->type_name("SECONDS");
  app.add_option("--runs", flags->runs, "how many runs to measure (default: as many as fit into --seconds)")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option(
         "--trace", flags->trace,
         "write the first runs as trace events in JSON, for Perfetto or chrome://tracing: runs, steps "
         "with the model's nodes, and the parts of steps on each thread")
      ->type_name("FILE");
  app.add_option("--group", flags->group,
                 "what a row is: a kernel, one step of the run, the model's nodes that a step computes, or "
                 "the scope of their names ('/encoder/layer.0')")
      ->check(CLI::IsMember({"kernel", "step", "node", "scope"}));
  app.add_option("--sort", flags->sort, "the order of the rows: largest first, or by name")
      ->check(CLI::IsMember({"total", "calls", "mean", "p50", "p99", "flops", "bytes", "name"}));
  app.add_flag(
      "--counters", flags->counters,
      "what the processor counts in each kernel: cycles, instructions, misses of its last cache and of "
      "branches; in the JSON for each thread");
  app.add_flag(
      "--cupti", flags->cupti,
      "on a GPU: take the times of kernels from NVIDIA's CUPTI (STRIDEC_CUPTI), so that recorded graphs "
      "stay as they are; without it kernels are launched one by one");
  app.add_option("--rows", flags->most_rows, "rows to list")->check(zero_or_more)->type_name("NUMBER");
  return [flags, &globals] { return profile(*flags, globals); };
}

}  // namespace stridec::cli
