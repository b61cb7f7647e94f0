#include "compiler/tune/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/parallel.h"
#include "compiler/base/sha256.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/walk.h"
#include "compiler/tune/search.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Candidate;

constexpr double kNegligible = 0.02;  // of a run: kernels with a smaller total share keep their default
constexpr double kLastRace = 0.1;     // of the time: for timing the run as a whole
constexpr double kTie = 0.01;         // of a run: smaller losses do not count

Key key_of(const loop::Program& program, const loop::Nest& nest, const Key& machine,
           const std::vector<Values>& shapes) {
  std::vector<sym::Expr> symbols;
  std::string text = loop::canonical_text(program, nest, &symbols);
  // The space depends on the code and on which buffers are constants that can be packed.
  for (const loop::BufferId id : loop::buffers_of(nest))
    text += program[id].storage == loop::Storage::kParameter ? 'w' : '.';
  std::vector<std::string> buckets;
  for (const Values& values : shapes) {
    std::string bucket = bucket_of(symbols, values);
    if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end())
      buckets.push_back(std::move(bucket));
  }
  Key key = machine;
  key.structure = sha256(text.data(), text.size()).substr(0, 16);
  key.shape = join(buckets, ",");
  return key;
}

// `order`: the nests in launch order.
std::vector<Tuned> kernels_of(const loop::Program& program, const Key& machine,
                              const std::vector<Values>& shapes, std::vector<loop::NestId>& order) {
  std::vector<Tuned> kernels;
  std::map<std::string, size_t> known;
  std::set<loop::NestId> seen;
  // Nests of a tiled-and-fused group are part of a kernel; their ranges differ from those of the nest alone.
  const std::set<loop::NestId> parts = loop::launched_in_groups(program);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || parts.contains(launch->nest)) return;
    order.push_back(launch->nest);
    if (!seen.insert(launch->nest).second) return;
    const loop::Nest& nest = program[launch->nest];
    Entry entry{.key = key_of(program, nest, machine, shapes), .kernel = nest.name};
    const auto [found, fresh] = known.emplace(to_string(entry.key), kernels.size());
    if (fresh) kernels.push_back({.entry = std::move(entry), .nodes = loop::nodes_of(nest)});
    kernels[found->second].nests.push_back(launch->nest);
  });
  return kernels;
}

// How the database's entries for the kernel's loops differ from the wanted key; empty if the database does
// not contain the loops.
std::vector<std::string> notes_of_others(const loop::Program& program, const Tuned& kernel,
                                         const Database& database) {
  constexpr size_t kMost = 4;
  std::vector<sym::Expr> symbols;
  loop::canonical_text(program, program[kernel.nests[0]], &symbols);
  const Key& wanted = kernel.entry.key;
  std::vector<std::string> notes;
  for (const Entry& entry : database.held()) {
    if (entry.key.structure != wanted.structure || entry.key.is_gpu() != wanted.is_gpu()) continue;
    std::string note = cat("it has one for ", difference(entry.key, wanted, symbols), ", but needs one for ",
                           difference(wanted, entry.key, symbols));
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
  }
  if (notes.size() > kMost) {
    const size_t more = notes.size() - (kMost - 1);
    notes.resize(kMost - 1);
    notes.push_back(cat("and ", more, " for others"));
  }
  return notes;
}

[[noreturn]] void fail_frozen(const loop::Program& program, const Tuned& kernel, const Options& options) {
  const bool refused = !kernel.refused.empty();
  Diagnostic diagnostic{
      .kind = ErrorKind::kMismatch,
      .code = refused ? "schedule-refused" : "not-tuned",
      .message = cat("kernel '", kernel.entry.kernel, "' has ",
                     refused ? "a schedule that does not apply" : "no entry", " in the tuning database"),
      .where = {.file = options.database->file(), .node = kernel.nodes}};
  if (refused)
    diagnostic.notes.push_back(kernel.refused);
  else
    diagnostic.notes = notes_of_others(program, kernel, *options.database);
  diagnostic.notes.push_back(cat("key    ", to_string(kernel.entry.key)));
  diagnostic.help = cat("'stridec tune' with the same flags and without --frozen",
                        kernel.entry.key.is_gpu() ? ", on a machine with such a GPU," : "",
                        refused ? " measures another one" : " adds what is missing",
                        kernel.entry.key.is_gpu() ? "; name with --gpu what it was run for" : "");
  throw Error(std::move(diagnostic));
}

// The program's shapes that are distinct for a nest, and for each shape of the program its index among them.
struct OwnShapes {
  std::vector<Values> shapes;
  std::vector<size_t> of;
};
OwnShapes own_shapes(const loop::Program& program, const loop::Nest& nest,
                     const std::vector<Values>& shapes) {
  std::vector<sym::Expr> symbols;
  loop::canonical_text(program, nest, &symbols);
  OwnShapes own;
  std::map<std::string, size_t> known;
  for (const Values& values : shapes) {
    const auto [found, fresh] = known.emplace(bucket_of(symbols, values), own.shapes.size());
    if (fresh) own.shapes.push_back(values);
    own.of.push_back(found->second);
  }
  return own;
}

struct Item {
  Tuned* kernel;
  std::vector<size_t> shape_of;
  std::unique_ptr<Search> search;
  bool timed = false;
  bool skipped = false;  // there was no time to measure its default
  bool settled = false;  // the search has ended by itself
  double share = 0;      // of a run, mean over the shapes
};

// A kernel that is faster alone may be slower in the run, where caches have other contents. All measured
// kernels are therefore run in the model's order with the defaults and with the schedules found. The latter
// are kept if they are faster in total and slower at no shape. Shapes whose runs do not fit into the time are
// omitted.
bool holds_together(const std::vector<Item>& items, const std::vector<loop::NestId>& order, size_t shapes,
                    Backend& backend, MeasureOptions measuring, double seconds) {
  constexpr int kLeastRuns = 12;  // of a race between two
  std::map<loop::NestId, size_t> item_of;
  for (size_t i = 0; i < items.size(); ++i)
    for (const loop::NestId nest : items[i].kernel->nests) item_of[nest] = i;
  double logs = 0, noise = 0;
  int raced = 0;
  for (size_t s = 0; s < shapes; ++s) {
    std::vector<Subject> runs(2);
    std::map<size_t, size_t> place;
    double run = 0;
    for (const loop::NestId nest : order) {
      const auto found = item_of.find(nest);
      if (found == item_of.end()) continue;
      const Item& item = items[found->second];
      const size_t own = item.shape_of[s];
      if (item.search->default_seconds(own) <= 0) continue;
      run += item.search->default_seconds(own);
      const auto [at, fresh] = place.emplace(found->second, place.size());
      for (const bool best : {false, true}) {
        if (fresh) runs[best].kernels.push_back(*item.search->subject(own, best));
        runs[best].order.push_back(at->second);
      }
    }
    if (run <= 0 || kLeastRuns * run > seconds) continue;
    measuring.seconds = std::clamp(60 * run, 0.1, seconds / static_cast<double>(shapes));
    measuring.hang_seconds = std::max(backend.least_patience(), 200 * run);
    const std::vector<Outcome> outcomes = backend.race(runs, measuring);
    if (outcomes[0].kind != Outcome::Kind::kTimed || outcomes[1].kind != Outcome::Kind::kTimed) return false;
    if (outcomes[1].ratio > 1 + std::max(kTie, 2 * outcomes[1].noise)) return false;
    logs += std::log(outcomes[1].ratio);
    noise = std::max(noise, outcomes[1].noise);
    ++raced;
  }
  return raced == 0 || std::exp(logs / raced) < 1 - noise;
}

// Records what is known about a kernel, also in the database, where the last entry counts.
void store(const Item& item, const Options& options) {
  Entry entry = item.search->entry();
  entry.key = item.kernel->entry.key;
  entry.kernel = item.kernel->entry.kernel;
  item.kernel->entry = entry;
  item.kernel->origin = Tuned::Origin::kMeasured;
  if (!options.database) return;
  options.database->append(entry);
  item.kernel->entry = *options.database->find(entry.key);
}

void measure_all(const loop::Program& program, Backend& backend, const Options& options,
                 const std::vector<Values>& shapes, const std::vector<loop::NestId>& order,
                 const std::vector<Tuned*>& kernels) {
  const Key machine = backend.machine();
  MeasureOptions measuring{.threads = machine.threads};
  for (const loop::Buffer& buffer : program.buffers)
    if (buffer.storage == loop::Storage::kParameter)
      measuring.rotate_bytes += static_cast<int64_t>(buffer.weight.size);
  measuring.rotate_bytes = std::min(measuring.rotate_bytes, backend.rotation());

  const auto start = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  size_t done = 0;
  auto tell = [&](const Tuned& kernel) {
    if (options.progress) options.progress(done++, 2 * kernels.size(), kernel.entry.kernel);
  };
  std::vector<Item> items;
  std::vector<Search*> searches;
  for (Tuned* kernel : kernels) {
    OwnShapes own = own_shapes(program, program[kernel->nests[0]], shapes);
    items.push_back(
        {kernel, std::move(own.of),
         std::make_unique<Search>(program, kernel->nests[0], backend, std::move(own.shapes), measuring)});
    searches.push_back(items.back().search.get());
  }
  Search::build_defaults(searches);
  for (Item& item : items) {
    tell(*item.kernel);
    item.skipped = passed() > options.seconds;
    item.timed = !item.skipped && item.search->measure_default();
  }
  for (size_t s = 0; s < shapes.size(); ++s) {
    std::vector<double> seconds;
    double run = 0;
    for (const Item& item : items) {
      double times = 0;
      for (const loop::NestId nest : item.kernel->nests)
        times += static_cast<double>(std::count(order.begin(), order.end(), nest));
      seconds.push_back(times * item.search->default_seconds(item.shape_of[s]));
      run += seconds.back();
    }
    for (size_t i = 0; i < items.size(); ++i)
      items[i].share += seconds[i] / std::max(run, 1e-12) / static_cast<double>(shapes.size());
  }
  // The longest-running kernel first: its measurements shorten the search of the others.
  sort_stable(items, [](const Item& x, const Item& y) { return x.share > y.share; });
  Calibration forecast(options.database ? options.database->lessons(machine) : ModelErrors{});
  double rest = 1;
  for (Item& item : items) {
    tell(*item.kernel);
    const double left = options.seconds * (1 - kLastRace) - passed();
    const double seconds = left * std::max(item.share / std::max(rest, 1e-12), 0.02);
    // A kernel whose search was postponed gets no entry.
    item.settled =
        !item.skipped && (!item.timed || rest < kNegligible || item.search->run(seconds, forecast));
    rest -= item.share;
    item.search->forget();
    if (item.settled) store(item, options);
  }
  const bool gains = std::any_of(items.begin(), items.end(), [](const Item& i) { return i.search->gains(); });
  if (gains && backend.races_runs() &&
      !holds_together(items, order, shapes.size(), backend, measuring,
                      std::max(options.seconds - passed(), 0.5))) {
    for (Item& item : items) {
      if (!item.search->gains()) continue;
      item.search->give_up();
      store(item, options);
    }
  }
  for (Item& item : items) item.kernel->trials = item.search->take_trials();
  if (options.database) options.database->append(machine, forecast.learned());
}

// Looks up the kernels in the database; they keep the names of this program. Returns the kernels that it
// lacks.
std::vector<Tuned*> look_up(const loop::Program& program, const Backend& backend, const Options& options,
                            std::vector<Tuned>& kernels) {
  std::vector<Tuned*> missing;
  for (Tuned& kernel : kernels) {
    const Entry* entry = options.database ? options.database->find(kernel.entry.key) : nullptr;
    // An entry is used only if its schedule is in the space: it may come from another compiler or an edited
    // file.
    const loop::Nest& nest = program[kernel.nests[0]];
    const std::string reason =
        entry ? backend.refusal(program, nest, loop::parse_schedule(entry->schedule)) : "";
    if (entry && reason.empty()) {
      const std::string name = kernel.entry.kernel;
      kernel.entry = *entry;
      kernel.entry.kernel = name;
      kernel.origin = Tuned::Origin::kDatabase;
      continue;
    }
    if (entry) kernel.refused = cat("'", entry->schedule, "' is refused: ", reason);
    if (options.frozen) fail_frozen(program, kernel, options);
    missing.push_back(&kernel);
  }
  return missing;
}

}  // namespace

Result tune(const loop::Program& program, Backend& backend, const Options& options) {
  const std::vector<Values> shapes = shapes_of(program, options.shapes);
  std::vector<loop::NestId> order;
  Result result;
  const auto read = [&] {
    order.clear();
    result.kernels = kernels_of(program, backend.machine(), shapes, order);
    return look_up(program, backend, options, result.kernels);
  };
  // The device is opened only if something is missing. From then on only its own entries count.
  std::vector<Tuned*> missing = read();
  if (options.measure && !missing.empty()) {
    result.problem = backend.problem();
    if (result.problem.empty()) {
      if (!backend.machine().device.empty()) missing = read();
      if (!missing.empty()) {
        if (options.before_measuring) options.before_measuring();
        measure_all(program, backend, options, shapes, order, missing);
      }
    }
  }
  for (const Tuned& kernel : result.kernels) {
    if (kernel.origin == Tuned::Origin::kDefault) continue;
    for (const loop::NestId nest : kernel.nests)
      result.chosen[nest] = loop::parse_schedule(kernel.entry.schedule);
  }
  return result;
}

Result tune(const loop::Program& program, const CpuTarget& target, const Options& options) {
  const int threads = options.threads > 0 ? options.threads : processors();
  return tune(program, *cpu_backend(target, threads, options.build), options);
}

Result tune(const loop::Program& program, const GpuTarget& target, const Options& options) {
  const codegen::cuda::BuildOptions build{.use_cache = options.build.use_cache, .nvrtc = options.nvrtc};
  return tune(program, *gpu_backend(target, build), options);
}

}  // namespace stridec::tune
