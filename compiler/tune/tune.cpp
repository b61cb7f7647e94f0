#include "compiler/tune/tune.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/candidates.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/tune/forecast.h"
#include "compiler/tune/measure.h"
#include "compiler/tune/subject.h"

namespace stridec::tune {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Candidate;

constexpr size_t kBatch = 6;                      // candidates built and measured together
constexpr double kWorthwhile = 0.01;              // a gain below one hundredth is none
constexpr double kNegligible = 0.002;             // of a run: kernels with less keep their default
constexpr int64_t kMostBytes = int64_t{2} << 30;  // of a kernel's arguments
constexpr int64_t kRotation = 64 << 20;           // bytes of weights after which none of them is in a cache

// ---- sizes ----

Values values_of(const loop::Program& program, const Options& options) {
  std::map<std::string, int64_t> values;
  for (const auto& [name, value] : options.shape) {
    const auto named = [&, &n = name](const loop::Symbol& s) { return s.var.name() == n; };
    const auto symbol = std::find_if(program.symbols.begin(), program.symbols.end(), named);
    const auto names = join(program.symbols, ", ", [](const loop::Symbol& s) { return s.var.name(); });
    if (symbol == program.symbols.end())
      fail(ErrorKind::kUsage, "unknown-symbol",
           cat("--tune-shape names '", name, "', which is no size of the model"),
           names.empty() ? "its sizes are all fixed" : cat("its sizes are ", names));
    if (!program.facts.bounds(symbol->var).contains(value))
      fail(ErrorKind::kUsage, "shape-range",
           cat("--tune-shape gives ", name, " = ", value, ", outside of its range"));
    values[name] = value;
  }
  for (const loop::Symbol& symbol : program.symbols) {
    const sym::Interval range = program.facts.bounds(symbol.var);
    const bool requests = symbol.input >= 0 && symbol.dim == 0 && !range.has_hi();
    values.emplace(symbol.var.name(),
                   requests ? std::max<int64_t>(1, range.has_lo() ? range.lo : 1)
                            : static_cast<int64_t>(schedule::typical(symbol.var, program.facts)));
  }
  return [values = std::move(values)](sym::Expr symbol) -> std::optional<int64_t> {
    const auto found = values.find(symbol.name());
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

Key key_of(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target, int threads,
           const Values& values) {
  std::vector<sym::Expr> symbols;
  std::string text = loop::canonical_text(program, nest, &symbols);
  // What the space depends on beside the code: which buffers are constants that can be packed.
  for (const loop::BufferId id : loop::buffers_of(nest))
    text += program[id].storage == loop::Storage::kWeight ? 'w' : '.';
  Key key{.structure = sha256(text.data(), text.size()).substr(0, 16),
          .shape = symbols.empty()
                       ? "-"
                       : join(symbols, "x",
                              [&](sym::Expr symbol) {
                                int64_t bucket = 1;
                                for (const int64_t value = values(symbol).value_or(1); bucket < value;)
                                  bucket *= 2;
                                return std::to_string(bucket);
                              }),
          .cpu = target.name,
          .threads = threads,
          .compiler = this_compiler()};
  return key;
}

// ---- one kernel ----

class Search {
 public:
  Search(const loop::Program& program, loop::NestId nest, const CpuTarget& target, const Values& values,
         const Options& options, MeasureOptions measuring)
      : alone_(only_nest(program, nest)),
        target_(target),
        values_(values),
        options_(options),
        measuring_(measuring) {}

  // The default's time alone; false: it cannot be had, and there is nothing to search.
  bool measure_default() {
    MeasureOptions quick = measuring_;
    quick.seconds = 0.02, quick.most_rounds = 5;
    first_ = {schedule::default_schedule(alone_, alone_.nests[0], target_), 0, {}};
    const std::vector<Outcome> outcomes = race({}, quick);
    if (outcomes[0].kind != Outcome::Kind::kTimed) {
      note(first_, outcomes[0]);
      return false;
    }
    default_seconds_ = outcomes[0].seconds;
    return true;
  }

  double default_seconds() const { return default_seconds_; }

  void run(double seconds, Forecast& forecast) {
    const auto start = Clock::now();
    auto left = [&] { return seconds - std::chrono::duration<double>(Clock::now() - start).count(); };
    space_ = schedule::candidates(alone_, alone_.nests[0], target_);
    STRIDEC_CHECK(!space_.empty(), alone_.nests[0].name);
    first_ = space_[0];
    tried_schedules_.assign(space_.size(), false);
    tried_schedules_[0] = true;
    measuring_.hang_seconds = std::max(2.0, 200 * default_seconds_);
    for (int batch = 0; batch < 6 && (batch == 0 || left() > 0); ++batch) {
      const std::vector<size_t> picked = pick(forecast);
      if (picked.empty()) break;
      const double calls = static_cast<double>(picked.size() + 1) * default_seconds_;
      measuring_.seconds = std::clamp(15 * calls, 0.05, std::max(0.1, left() / 2));
      std::vector<const Candidate*> candidates;
      for (const size_t i : picked) candidates.push_back(&space_[i]);
      const std::vector<Outcome> outcomes = race(candidates, measuring_);
      if (outcomes[0].kind != Outcome::Kind::kTimed) break;
      default_seconds_ = outcomes[0].seconds;
      for (size_t i = 0; i < picked.size(); ++i) judge(space_[picked[i]], outcomes[i + 1], forecast);
    }
    confirm();
  }

  Entry entry() const {
    return {.microseconds = default_seconds_ * ratio_ * 1e6,
            .default_microseconds = default_seconds_ * 1e6,
            .noise_percent = noise_ * 100,
            .tried = tried_,
            .schedule = loop::to_string(best_ ? best_->schedule : first_.schedule),
            .kernel = alone_.nests[0].name};
  }
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  // The best of every family that is not known, then variations of the best schedule's own: those that may gain.
  std::vector<size_t> pick(const Forecast& forecast) {
    struct Pick {
      size_t index;
      double likely;
    };
    std::map<std::string, Pick> families;
    std::vector<Pick> own;
    const std::string& leading = best_ ? best_->family : first_.family;
    for (size_t i = 1; i < space_.size(); ++i) {
      if (tried_schedules_[i]) continue;
      const Candidate& candidate = space_[i];
      const auto [likely, least] = forecast.range(candidate.family, expected(candidate));
      if (least > ratio_ * (1 - std::max(kWorthwhile, noise_))) continue;
      if (candidate.family == leading) own.push_back({i, likely});
      if (tried_families_.count(candidate.family)) continue;
      const auto [found, fresh] = families.emplace(candidate.family, Pick{i, likely});
      if (!fresh && likely < found->second.likely) found->second = {i, likely};
    }
    std::vector<Pick> picks;
    for (const auto& [family, chosen] : families) picks.push_back(chosen);
    auto sooner = [](const Pick& x, const Pick& y) { return x.likely < y.likely; };
    sort_stable(picks, sooner);
    sort_stable(own, sooner);
    for (const Pick& chosen : own) {
      const auto same = [&](const Pick& p) { return p.index == chosen.index; };
      if (std::none_of(picks.begin(), picks.end(), same)) picks.push_back(chosen);
    }
    std::vector<size_t> indices;
    for (size_t i = 0; i < picks.size() && i < kBatch; ++i) {
      indices.push_back(picks[i].index);
      tried_schedules_[picks[i].index] = true;
      tried_families_.insert(space_[picks[i].index].family);
    }
    return indices;
  }

  double expected(const Candidate& candidate) const {
    return candidate.cycles / std::max(first_.cycles, 1.0);
  }

  void judge(const Candidate& candidate, const Outcome& outcome, Forecast& forecast) {
    ++tried_;
    if (outcome.kind != Outcome::Kind::kTimed) return note(candidate, outcome);
    forecast.learn(candidate.family, expected(candidate), outcome.ratio);
    // Twice the standard error: one in forty better ones by chance.
    if (outcome.ratio > ratio_ * (1 - std::max(kWorthwhile, 2 * outcome.noise))) return;
    best_ = &candidate;
    ratio_ = outcome.ratio;
    noise_ = outcome.noise;
  }

  // Of many that are equally good one looks better by chance: what was found best has to win once more, by itself, and
  // that race's figures are the ones that count.
  void confirm() {
    if (!best_) return;
    measuring_.seconds = std::clamp(60 * default_seconds_, 0.1, 1.0);
    const std::vector<Outcome> outcomes = race({best_}, measuring_);
    const Outcome& again = outcomes[1];
    const bool timed = outcomes[0].kind == Outcome::Kind::kTimed && again.kind == Outcome::Kind::kTimed;
    if (timed) default_seconds_ = outcomes[0].seconds;
    const bool holds = timed && again.ratio <= 1 - std::max(kWorthwhile, 2 * again.noise);
    ratio_ = holds ? again.ratio : 1;
    noise_ = holds ? again.noise : 0;
    if (!holds) best_ = nullptr;
  }

  void note(const Candidate& candidate, const Outcome& outcome) {
    const char* what = outcome.kind == Outcome::Kind::kCrashed ? "crashed"
                       : outcome.kind == Outcome::Kind::kHung  ? "hung"
                                                               : "failed";
    remarks_.push_back(cat(what, ": ", outcome.reason, ": ", loop::to_string(candidate.schedule)));
  }

  // Outcomes of the default and the candidates, in this order.
  std::vector<Outcome> race(const std::vector<const Candidate*>& candidates,
                            const MeasureOptions& measuring) {
    std::vector<const Candidate*> all = {&first_};
    all.insert(all.end(), candidates.begin(), candidates.end());
    std::vector<Outcome> outcomes(all.size());
    std::vector<codegen::Kernel> kernels;
    std::vector<Subject> subjects;
    std::vector<size_t> racing;
    for (size_t i = 0; i < all.size(); ++i) {
      try {
        Emitted made = emit_subject(alone_, all[i]->schedule, target_, values_);
        int64_t bytes = 0;
        for (const auto& argument : made.subject.arguments) bytes += argument.bytes;
        if (bytes > kMostBytes || made.subject.tasks <= 0) {
          outcomes[i].reason = bytes > kMostBytes ? "too large to measure" : "nothing to do at this size";
          continue;
        }
        kernels.push_back(std::move(made.kernel));
        subjects.push_back(std::move(made.subject));
        racing.push_back(i);
      } catch (const Error& error) {
        outcomes[i].reason = error.text;
      }
    }
    if (racing.empty() || racing[0] != 0) return outcomes;
    const codegen::cpu::KernelObjects built = codegen::cpu::build_kernels(kernels, target_, options_.build);
    for (size_t s = 0; s < subjects.size(); ++s) {
      subjects[s].symbol = built.kernels[static_cast<size_t>(built.uses[s][0])].symbol;
      for (const int used : built.uses[s])
        subjects[s].objects.push_back(&built.kernels[static_cast<size_t>(used)].object);
    }
    const std::vector<Outcome> measured = measure(subjects, measuring);
    for (size_t s = 0; s < subjects.size(); ++s) outcomes[racing[s]] = measured[s];
    return outcomes;
  }

  const loop::Program alone_;
  const CpuTarget& target_;
  const Values& values_;
  const Options& options_;
  MeasureOptions measuring_;
  Candidate first_;
  std::vector<Candidate> space_;
  std::vector<bool> tried_schedules_;
  std::set<std::string> tried_families_;
  const Candidate* best_ = nullptr;
  double ratio_ = 1, noise_ = 0, default_seconds_ = 0;
  int tried_ = 1;
  std::vector<std::string> remarks_;
};

// ---- a program ----

std::vector<Tuned> kernels_of(const loop::Program& program, const CpuTarget& target, int threads,
                              const Values& values, std::map<loop::NestId, int>& launches) {
  std::vector<Tuned> kernels;
  std::map<std::string, size_t> known;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || launches[launch->nest]++) return;
    const loop::Nest& nest = program[launch->nest];
    Entry entry{.key = key_of(program, nest, target, threads, values), .kernel = nest.name};
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

void measure_all(const loop::Program& program, const CpuTarget& target, const Options& options,
                 const Values& values, int threads, const std::map<loop::NestId, int>& launches,
                 std::vector<Tuned*> kernels) {
  MeasureOptions measuring{.threads = threads};
  for (const loop::Buffer& buffer : program.buffers)
    if (buffer.storage == loop::Storage::kWeight)
      measuring.rotate_bytes += static_cast<int64_t>(buffer.weight.size);
  measuring.rotate_bytes = std::min(measuring.rotate_bytes, kRotation);

  const auto start = Clock::now();
  struct Item {
    Tuned* kernel;
    std::unique_ptr<Search> search;
    double seconds;  // of a run
  };
  std::vector<Item> items;
  double run = 0;
  size_t done = 0;
  const size_t total = 2 * kernels.size();
  auto tell = [&](const Tuned& kernel) {
    if (options.progress) options.progress(done++, total, kernel.entry.kernel);
  };
  for (Tuned* kernel : kernels) {
    tell(*kernel);
    auto search = std::make_unique<Search>(program, kernel->nests[0], target, values, options, measuring);
    if (!search->measure_default()) {
      kernel->remarks = search->remarks();
      ++done;
      continue;
    }
    double times = 0;
    for (const loop::NestId nest : kernel->nests) times += launches.at(nest);
    const double seconds = times * search->default_seconds();
    run += seconds;
    items.push_back({kernel, std::move(search), seconds});
  }
  // What takes longest first: what it teaches shortens the search of the others.
  sort_stable(items, [](const Item& x, const Item& y) { return x.seconds > y.seconds; });
  Forecast forecast;
  double rest = run;
  for (Item& item : items) {
    tell(*item.kernel);
    const double left = options.seconds - std::chrono::duration<double>(Clock::now() - start).count();
    const double share = left * std::max(item.seconds / std::max(rest, 1e-12), 0.02);
    rest -= item.seconds;
    if (item.seconds > kNegligible * run && left > 0) item.search->run(share, forecast);
    const Key key = item.kernel->entry.key;
    item.kernel->entry = item.search->entry();
    item.kernel->entry.key = key;
    item.kernel->origin = Tuned::Origin::kMeasured;
    item.kernel->remarks = item.search->remarks();
    if (options.database) {
      options.database->append(item.kernel->entry);
      item.kernel->entry = *options.database->find(key);
    }
  }
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
  const Values values = values_of(program, options);
  std::map<loop::NestId, int> launches;
  Result result{.kernels = kernels_of(program, target, threads, values, launches)};
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
    measure_all(program, target, options, values, threads, launches, missing);
  for (const Tuned& kernel : result.kernels) {
    if (kernel.origin == Tuned::Origin::kDefault) continue;
    for (const loop::NestId nest : kernel.nests)
      result.chosen[nest] = loop::parse_schedule(kernel.entry.schedule);
  }
  return result;
}

}  // namespace stridec::tune
