// Compiles random programs with random legal schedules and compares them with the interpreter.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/directives/applies.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/layout/layout.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

class RandomPlans {
 public:
  explicit RandomPlans(uint32_t seed) : random_(seed) {}

  // Tries random directives in sequence, each in addition to those that applied.
  void choose(const Program& program, Nest& nest) {
    nest.schedule = {};
    if (nest.dims.size() > 1 && flip()) {
      std::vector<std::string> dims;
      for (const Dim& dim : schedule::reshaped(program, nest, {}).dims) dims.push_back(dim.var.name());
      std::shuffle(dims.begin(), dims.end(), random_);
      add(program, nest, {"reorder", dims});
    }
    for (size_t i = 0; i + 1 < nest.dims.size(); ++i)
      if (flip()) add(program, nest, {"merge", {nest.dims[i].var.name(), nest.dims[i + 1].var.name()}});
    for (size_t i = 0; i < nest.dims.size(); ++i)
      if (flip()) add(program, nest, {"split", {nest.dims[i].var.name(), cat(1 + random_() % 4)}});
    const Nest shaped = schedule::reshaped(program, nest, schedule::parse_plan(nest.schedule));
    std::vector<std::string> dims, loops;
    for (const Dim& dim : shaped.dims) dims.push_back(dim.var.name());
    for_each_stmt(shaped.body, [&](const Stmt& stmt) {
      for (const Dim& dim : dims_of(stmt)) loops.push_back(dim.var.name());
    });
    std::shuffle(dims.begin(), dims.end(), random_);
    const auto tasks = static_cast<std::ptrdiff_t>(dims.empty() ? 0 : random_() % (dims.size() + 1));
    add(program, nest, {"tasks", {dims.begin(), dims.begin() + tasks}});
    add(program, nest, {"chunk", {cat(1 + random_() % 5)}});
    add(program, nest, {"grain", {cat(1 + random_() % 3)}});
    if (flip() && !dims.empty()) add(program, nest, {"vectorize", {one_of(dims), lanes()}});
    for (const std::string& dim : loops)
      if (flip()) {
        add(program, nest, {"vectorize", {dim, lanes()}});
        add(program, nest, {"accumulators", {dim, cat(1 << random_() % 3)}});
      }
    if (dims.empty()) return;
    for (int tiles = 0; tiles < 2; ++tiles)
      if (flip()) add(program, nest, {"tile", {one_of(dims), cat(1 + random_() % 40)}});
    if (flip()) add(program, nest, {"points", {one_of(dims), cat(1 + random_() % 5)}});
    std::vector<std::string> order;
    for (const std::string& dim : dims)
      if (flip()) order.push_back(dim);
    add(program, nest, {"order", order});
    add(program, nest, {"single", {one_of(dims)}});
    for (const std::string& dim : dims)
      for (const char* size : {"4", "8", "16"}) add(program, nest, {"transpose", {dim, size}});
  }

  std::map<std::string, int> applied, refused;  // directives by name

 private:
  // Keeps the directive if it applies.
  void add(const Program& program, Nest& nest, Directive directive) {
    if (directive.args.empty()) return;
    const std::string name = directive.name;
    nest.schedule.directives.push_back(std::move(directive));
    const bool applies = schedule::why_illegal(program, nest, nest.schedule).empty();
    ++(applies ? applied : refused)[name];
    if (!applies) nest.schedule.directives.pop_back();
  }
  std::string lanes() { return cat(4 << random_() % 3); }
  const std::string& one_of(const std::vector<std::string>& names) { return names[random_() % names.size()]; }
  bool flip() { return random_() % 2 == 0; }
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("random schedules of random programs give what the interpreter gives") {
  std::map<std::string, int> applied, refused;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Pieces p = random_program(seed);
    Program scheduled = p.program;
    schedule::fuse(scheduled);
    if (seed % 2) schedule::choose_layouts(scheduled);
    RandomPlans plans(seed);
    for (Nest& nest : scheduled.nests) plans.choose(scheduled, nest);
    for (const auto& [name, times] : plans.applied) applied[name] += times;
    for (const auto& [name, times] : plans.refused) refused[name] += times;
    codegen::cpu::CompiledProgram compiled(scheduled);
    for (int64_t n : {0, 1, 7, 33}) {
      CAPTURE(n);
      const auto inputs = random_inputs(p.program, {{p.n, n}, {p.m, 4}}, seed);
      CHECK(close(interpret(p.program, inputs), compiled.run(inputs), 2e-5));
    }
  }
  // Each directive must have been applied and, unless it applies to all these nests, refused.
  for (const std::string name : {"reorder", "merge", "split", "tasks", "order", "vectorize", "accumulators",
                                 "single", "transpose", "tile", "points"}) {
    CAPTURE(name);
    CHECK(applied[name] > 0);
    if (name != "reorder" && name != "tasks") CHECK(refused[name] > 0);
  }
}

TEST_CASE("schedules drawn from the tuner's space give what the interpreter gives") {
  const CpuTarget& target = cpu_target("native");
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const Pieces p = random_program(seed);
    Program scheduled = p.program;
    schedule::fuse(scheduled);
    if (seed % 2) schedule::choose_layouts(scheduled);
    std::mt19937 random(seed);
    schedule::Chosen chosen;
    for (size_t i = 0; i < scheduled.nests.size(); ++i) {
      const auto space = schedule::candidates(scheduled, scheduled.nests[i], target);
      REQUIRE(!space.empty());
      chosen[NestId(static_cast<int64_t>(i))] = space[random() % space.size()].schedule;
    }
    schedule::choose(scheduled, target, chosen);
    codegen::cpu::CompiledProgram compiled(scheduled);
    for (int64_t n : {0, 1, 7, 33}) {
      CAPTURE(n);
      const auto inputs = random_inputs(p.program, {{p.n, n}, {p.m, 4}}, seed);
      CHECK(close(interpret(p.program, inputs), compiled.run(inputs), 2e-5));
    }
  }
}
