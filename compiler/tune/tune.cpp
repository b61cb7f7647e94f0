#include "compiler/tune/tune.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/candidates.h"
#include "compiler/tune/search.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Candidate;

constexpr double kNegligible = 0.002;    // of a run: kernels with less keep their default
constexpr int64_t kRotation = 64 << 20;  // bytes of weights after which none of them is in a cache

Key key_of(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target, int threads,
           const std::vector<Values>& shapes) {
  std::vector<sym::Expr> symbols;
  std::string text = loop::canonical_text(program, nest, &symbols);
  // What the space depends on beside the code: which buffers are constants that can be packed.
  for (const loop::BufferId id : loop::buffers_of(nest))
    text += program[id].storage == loop::Storage::kWeight ? 'w' : '.';
  std::vector<std::string> buckets;
  for (const Values& values : shapes) {
    std::string bucket = bucket_of(symbols, values);
    if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end())
      buckets.push_back(std::move(bucket));
  }
  return {.structure = sha256(text.data(), text.size()).substr(0, 16),
          .shape = join(buckets, ","),
          .cpu = target.name,
          .threads = threads,
          .compiler = this_compiler()};
}

std::vector<Tuned> kernels_of(const loop::Program& program, const CpuTarget& target, int threads,
                              const std::vector<Values>& shapes, std::map<loop::NestId, int>& launches) {
  std::vector<Tuned> kernels;
  std::map<std::string, size_t> known;
  // What strips run is part of a kernel, whose ranges no measurement of a nest by itself has.
  const std::set<loop::NestId> parts = loop::launched_in_strips(program);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || parts.contains(launch->nest) || launches[launch->nest]++) return;
    const loop::Nest& nest = program[launch->nest];
    Entry entry{.key = key_of(program, nest, target, threads, shapes), .kernel = nest.name};
    const auto [found, fresh] = known.emplace(to_string(entry.key), kernels.size());
    if (fresh) kernels.push_back({.entry = std::move(entry)});
    kernels[found->second].nests.push_back(launch->nest);
  });
  return kernels;
}

// An entry holds where its schedule is in the space: other compilers, and files that were edited, are no reason to
// emit nonsense.
bool is_candidate(const loop::Program& program, const Tuned& kernel, const CpuTarget& target) {
  const loop::Schedule schedule = loop::parse_schedule(kernel.entry.schedule);
  const loop::Nest& nest = program[kernel.nests[0]];
  if (schedule == schedule::default_schedule(program, nest, target)) return true;
  const auto space = schedule::candidates(program, nest, target);
  return std::any_of(space.begin(), space.end(), [&](const Candidate& c) { return c.schedule == schedule; });
}

[[noreturn]] void fail_frozen(const Tuned& kernel, const Options& options, bool stale) {
  Error error({.kind = ErrorKind::kMismatch,
               .code = "not-tuned",
               .message = cat("kernel '", kernel.entry.kernel, "' has ",
                              stale ? "a schedule that this build does not know" : "no entry",
                              " in the tuning database"),
               .notes = {cat("key    ", to_string(kernel.entry.key))},
               .help = "'stridec tune' with the same flags and without --frozen adds what is missing"});
  error.diagnostic.where.file = options.database->file();
  throw error;
}

// The program's shapes that are different ones for a nest, and of each shape which of these it is.
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

void measure_all(const loop::Program& program, const CpuTarget& target, const Options& options,
                 const std::vector<Values>& shapes, int threads, const std::map<loop::NestId, int>& launches,
                 const std::vector<Tuned*>& kernels) {
  MeasureOptions measuring{.threads = threads};
  for (const loop::Buffer& buffer : program.buffers)
    if (buffer.storage == loop::Storage::kWeight)
      measuring.rotate_bytes += static_cast<int64_t>(buffer.weight.size);
  measuring.rotate_bytes = std::min(measuring.rotate_bytes, kRotation);

  const auto start = Clock::now();
  size_t done = 0;
  auto tell = [&](const Tuned& kernel) {
    if (options.progress) options.progress(done++, 2 * kernels.size(), kernel.entry.kernel);
  };
  struct Item {
    Tuned* kernel;
    std::vector<size_t> shape_of;
    std::unique_ptr<Search> search;
    bool timed = false;
    double share = 0;  // of a run, mean over the shapes
  };
  std::vector<Item> items;
  std::vector<Search*> searches;
  for (Tuned* kernel : kernels) {
    OwnShapes own = own_shapes(program, program[kernel->nests[0]], shapes);
    items.push_back({kernel, std::move(own.of),
                     std::make_unique<Search>(program, kernel->nests[0], target, std::move(own.shapes),
                                              options.build, measuring)});
    searches.push_back(items.back().search.get());
  }
  Search::build_defaults(searches);
  for (Item& item : items) {
    tell(*item.kernel);
    item.timed = item.search->measure_default();
  }
  for (size_t s = 0; s < shapes.size(); ++s) {
    std::vector<double> seconds;
    double run = 0;
    for (const Item& item : items) {
      double times = 0;
      for (const loop::NestId nest : item.kernel->nests) times += launches.at(nest);
      seconds.push_back(times * item.search->default_seconds(item.shape_of[s]));
      run += seconds.back();
    }
    for (size_t i = 0; i < items.size(); ++i)
      items[i].share += seconds[i] / std::max(run, 1e-12) / static_cast<double>(shapes.size());
  }
  // What takes longest first: what it teaches shortens the search of the others.
  sort_stable(items, [](const Item& x, const Item& y) { return x.share > y.share; });
  const Key machine{.cpu = target.name, .threads = threads, .compiler = this_compiler()};
  Forecast forecast(options.database ? options.database->lessons(machine) : Lessons{});
  double rest = 1;
  for (Item& item : items) {
    tell(*item.kernel);
    const double left = options.seconds - std::chrono::duration<double>(Clock::now() - start).count();
    const double seconds = left * std::max(item.share / std::max(rest, 1e-12), 0.02);
    rest -= item.share;
    if (item.timed && item.share > kNegligible && left > 0) item.search->run(seconds, forecast);
    const Key key = item.kernel->entry.key;
    const std::string name = item.kernel->entry.kernel;
    item.kernel->entry = item.search->entry();
    item.kernel->entry.key = key;
    item.kernel->entry.kernel = name;
    item.kernel->origin = Tuned::Origin::kMeasured;
    item.kernel->trials = item.search->take_trials();
    if (options.database) {
      options.database->append(item.kernel->entry);
      item.kernel->entry = *options.database->find(key);
    }
    item.search.reset();  // its kernels
  }
  if (options.database) options.database->append(machine, forecast.learned());
}

}  // namespace

bool can_run(const CpuTarget& target) {
  const auto wanted = codegen::cpu_features(target.name),
             have = codegen::cpu_features(cpu_target("native").name);
  return std::includes(have.begin(), have.end(), wanted.begin(), wanted.end());
}

Result tune(const loop::Program& program, const CpuTarget& target, const Options& options) {
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::vector<Values> shapes = shapes_of(program, options.shapes);
  std::map<loop::NestId, int> launches;
  Result result{.kernels = kernels_of(program, target, threads, shapes, launches)};
  std::vector<Tuned*> missing;
  for (Tuned& kernel : result.kernels) {
    const Entry* entry = options.database ? options.database->find(kernel.entry.key) : nullptr;
    if (entry) {
      const std::string name = kernel.entry.kernel;
      kernel.entry = *entry;
      kernel.entry.kernel = name;
      kernel.origin = Tuned::Origin::kDatabase;
      if (is_candidate(program, kernel, target)) continue;
      kernel.origin = Tuned::Origin::kDefault;
    }
    if (options.frozen) fail_frozen(kernel, options, entry);
    missing.push_back(&kernel);
  }
  if (options.measure && !missing.empty() && can_run(target))
    measure_all(program, target, options, shapes, threads, launches, missing);
  for (const Tuned& kernel : result.kernels) {
    if (kernel.origin == Tuned::Origin::kDefault) continue;
    for (const loop::NestId nest : kernel.nests)
      result.chosen[nest] = loop::parse_schedule(kernel.entry.schedule);
  }
  return result;
}

}  // namespace stridec::tune
