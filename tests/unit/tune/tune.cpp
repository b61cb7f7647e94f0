#include "compiler/tune/tune.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/explain.h"
#include "compiler/tune/backend.h"
#include "compiler/tune/cost_model_calibration.h"
#include "tests/unit/tune/program.h"

using namespace stridec;
using namespace stridec::testing;
using namespace stridec::tune;

TEST_CASE("equal kernels are tuned once, from the space of candidates, and replayed") {
  const loop::Program p = program();
  const CpuTarget& target = cpu_target("native");
  Database database("");
  Options options{
      .database = &database, .measure = true, .shapes = {{{"n", 64}}}, .seconds = 3, .threads = 2};
  const Result first = tune::tune(p, target, options);
  REQUIRE(!first.kernels.empty());
  size_t nests = 0;
  for (const Tuned& kernel : first.kernels) {
    CHECK(kernel.origin == Tuned::Origin::kMeasured);
    CHECK(kernel.entry.microseconds > 0);
    CHECK(kernel.entry.microseconds <= kernel.entry.default_microseconds * 1.001);
    CHECK(kernel.entry.key.shape.find("64") != std::string::npos);
    for (const Trial& trial : kernel.trials) CHECK(trial.problem == "");
    nests += kernel.nests.size();
    const auto space = schedule::candidates(p, p[kernel.nests[0]], target);
    bool found = false;
    for (const auto& candidate : space)
      found = found || loop::to_string(candidate.schedule) == kernel.entry.schedule;
    CHECK(found);
  }
  CHECK(nests == first.chosen.size());
  CHECK(nests > first.kernels.size());

  options.measure = false, options.frozen = true;
  const Result again = tune::tune(p, target, options);
  CHECK(again.chosen == first.chosen);
  for (const Tuned& kernel : again.kernels) CHECK(kernel.origin == Tuned::Origin::kDatabase);

  // Another bucket of sizes has no entries; 50 is in the bucket of 64.
  options.shapes = {{{"n", 50}}};
  CHECK(tune::tune(p, target, options).chosen == first.chosen);
  options.shapes = {{{"n", 65}}};
  const std::string missing = message([&] { tune::tune(p, target, options); });
  CHECK(missing.find("has no entry") != std::string::npos);
  CHECK(missing.find(first.kernels[0].entry.kernel) != std::string::npos);
  // Sizes are rounded up to a power of two.
  try {
    tune::tune(p, target, options);
  } catch (const Error& error) {
    REQUIRE(!error.diagnostic.notes.empty());
    CHECK(error.diagnostic.notes[0] ==
          "it has one for sizes up to n=64, but needs one for sizes up to n=128");
  }
}

TEST_CASE("what differs between an entry and the request is named") {
  const Key wanted{
      .structure = "0", .shape = "1x128,64x128", .target = "znver5", .device = "", .compiler = "0.1.0-a"};
  Key key = wanted;
  const std::vector<sym::Expr> symbols = {sym::var("batch"), sym::var("sequence")};
  CHECK(difference(key, wanted, symbols) == "");
  key.shape = "1x128", key.threads = 4;
  CHECK(difference(key, wanted, symbols) == "sizes up to batch=1,sequence=128, 4 threads");
  CHECK(difference(wanted, key, symbols) ==
        "sizes up to batch=1,sequence=128 and batch=64,sequence=128, 1 thread");
  key = wanted, key.target = "znver4", key.compiler = "0.1.0-b";
  CHECK(difference(key, wanted, symbols) == "target znver4, compiler 0.1.0-b");
  key = wanted, key.shape = "written by hand";
  CHECK(difference(key, wanted, symbols) == "sizes up to written by hand");
}

namespace {

// A backend whose model predicts half the default's time for every other schedule, and `together` for a run
// of all.
class Promising : public Backend {
 public:
  explicit Promising(double together)
      : own_(cpu_backend(cpu_target("native"), 1, build_)), together_(together) {}

  Key machine() const override { return own_->machine(); }
  std::string problem() override { return ""; }
  std::vector<schedule::Candidate> candidates(const loop::Program& alone, const std::vector<Values>& shapes,
                                              const loop::Schedule* around) const override {
    return own_->candidates(alone, shapes, around);
  }
  loop::Schedule default_schedule(const loop::Program& alone) const override {
    return own_->default_schedule(alone);
  }
  std::string refusal(const loop::Program& program, const loop::Nest& nest,
                      const loop::Schedule& schedule) const override {
    return own_->refusal(program, nest, schedule);
  }
  std::vector<std::unique_ptr<Code>> build(const std::vector<Wanted>& wanted) override {
    return own_->build(wanted);
  }
  std::vector<Outcome> race(const std::vector<Subject>& subjects, const MeasureOptions&) override {
    runs += !subjects[0].kernels.empty();
    std::vector<Outcome> outcomes;
    for (size_t s = 0; s < subjects.size(); ++s) {
      const double ratio = s == 0 ? 1 : subjects[s].kernels.empty() ? 0.5 : together_;
      outcomes.push_back(
          {.kind = Outcome::Kind::kTimed, .reason = "", .seconds = ratio * 1e-4, .ratio = ratio});
    }
    return outcomes;
  }
  bool races_runs() const override { return true; }
  int64_t rotation() const override { return own_->rotation(); }
  double least_patience() const override { return own_->least_patience(); }

  int runs = 0;

 private:
  codegen::cpu::BuildOptions build_;
  std::unique_ptr<Backend> own_;
  double together_;
};

}  // namespace

TEST_CASE("what wins kernel by kernel holds where it is faster as a whole") {
  const loop::Program p = program();
  for (const double together : {0.9, 1.2}) {
    Promising backend(together);
    Database database("");
    const Result result = tune::tune(
        p, backend, {.database = &database, .measure = true, .shapes = {{{"n", 64}}}, .seconds = 5});
    CHECK(backend.runs == 1);
    for (const Tuned& kernel : result.kernels) {
      const loop::Program alone = only_nest(p, kernel.nests[0]);
      const bool gains = kernel.entry.schedule != loop::to_string(backend.default_schedule(alone));
      CHECK(gains == (together < 1));
      CHECK(database.find(kernel.entry.key)->schedule == kernel.entry.schedule);
      CHECK(!kernel.trials.empty());
    }
  }
}

TEST_CASE("a kernel whose turn does not come has no entry, and gets one another time") {
  const loop::Program p = program();
  Database database("");
  Options options{.database = &database, .measure = true, .seconds = 0, .threads = 1};
  const Result none = tune::tune(p, cpu_target("native"), options);
  CHECK(none.chosen.empty());
  for (const Tuned& kernel : none.kernels) CHECK(kernel.origin == Tuned::Origin::kDefault);
  CHECK(database.entries().empty());
  options.seconds = 3;
  CHECK(!tune::tune(p, cpu_target("native"), options).chosen.empty());
}

TEST_CASE("an entry outside of the space is none") {
  const loop::Program p = program();
  const CpuTarget& target = cpu_target("native");
  Database measured(""), edited("");
  Options options{.database = &measured, .measure = true, .seconds = 0.5, .threads = 1};
  tune::tune(p, target, options);
  for (Entry entry : measured.entries()) {
    entry.schedule =
        "gemm.f32.8x48: rows %i7; columns %i1; run %i2; a direct; b weights 48; tiles 3; order rows";
    edited.append(entry);
  }
  options.database = &edited, options.measure = false;
  const tune::Result refused = tune::tune(p, target, options);
  CHECK(refused.chosen.empty());
  REQUIRE(!refused.kernels.empty());
  CHECK(refused.kernels[0].refused.starts_with("'gemm.f32.8x48: rows %i7; columns %i1; "));
  CHECK(refused.kernels[0].refused.find("is refused: ") != std::string::npos);
  options.frozen = true;
  CHECK(message([&] { tune::tune(p, target, options); }).find("schedule that does not apply") !=
        std::string::npos);
}

TEST_CASE("what strips run has no entry, and needs none where the database is frozen") {
  loop::Program p = planes_of_products(48, 48);
  schedule::tile_and_fuse(p);
  for (loop::Nest& nest : p.nests) loop::renumber(nest);
  const std::set<loop::NestId> parts = loop::launched_in_groups(p);
  REQUIRE(!parts.empty());
  Database database("");
  Options options{.database = &database, .measure = true, .seconds = 0.5, .threads = 1};
  const auto untouched = [&](const Result& result) {
    for (const Tuned& kernel : result.kernels)
      for (const loop::NestId nest : kernel.nests) CHECK(!parts.contains(nest));
    for (const auto& [nest, schedule] : result.chosen) CHECK(!parts.contains(nest));
  };
  const Result first = tune::tune(p, cpu_target("native"), options);
  untouched(first);
  options.measure = false, options.frozen = true;
  const Result again = tune::tune(p, cpu_target("native"), options);
  untouched(again);
  CHECK(again.chosen == first.chosen);
  const auto choices = schedule::explain(p, cpu_target("native"), again.chosen);
  CHECK(std::count_if(choices.begin(), choices.end(), [](const auto& each) { return each.in_tiled_group; }) >
        0);
}

TEST_CASE("a template's schedule that is refused names the directive, and what it could be") {
  const auto parsed = [](const char* text) { return loop::parse_schedule(text); };
  const std::vector<schedule::Candidate> space = {
      {parsed("gemm.f32.8x32: rows %i0; tiles 2; order rows"), 1, ""},
      {parsed("gemm.f32.8x32: rows %i0; tiles 4; order rows"), 2, ""},
      {parsed("gemm.f32.8x32: rows %i0; tiles 8; order columns"), 3, ""},
      {parsed("tasks %i0; vectorize %i1 16"), 4, ""},
  };
  for (const schedule::Candidate& candidate : space)
    CHECK(schedule::refusal(space, candidate.schedule).empty());
  CHECK(schedule::refusal(space, parsed("gemm.f32.6x64: rows %i0; tiles 2")) ==
        "its kernel is not one of those for this nest: gemm.f32.8x32, loops without a template");
  CHECK(schedule::refusal(space, parsed("gemm.f32.8x32: rows %i0; tiles 3; order rows")) ==
        "'tiles 3' does not apply: with the rest it can be 'tiles 2', 'tiles 4'");
  CHECK(schedule::refusal(space, parsed("gemm.f32.8x32: rows %i0; tiles 2; order rows; unroll %i1 4")) ==
        "'unroll %i1 4' does not apply: nothing of that name does here");
  CHECK(schedule::refusal(space, parsed("gemm.f32.8x32: rows %i0; order rows")) == "'tiles 2' is missing");
  CHECK(schedule::refusal(space, parsed("gemm.f32.8x32: tiles 4; rows %i0; order rows")) ==
        "its directives have another order than in 'gemm.f32.8x32: rows %i0; tiles 4; order rows'");
}

TEST_CASE("shapes to tune for are sizes of the model, within their ranges") {
  const loop::Program p = program();
  const CpuTarget& target = cpu_target("native");
  Database database("");
  Options options{.database = &database, .shapes = {{{"depth", 3}}}};
  CHECK(message([&] { tune::tune(p, target, options); }).find("'depth'") != std::string::npos);
  options.shapes = {{{"n", -5}}};
  CHECK(message([&] { tune::tune(p, target, options); }).find("outside of its range") != std::string::npos);
}

TEST_CASE("what is measured moves the forecast of its family and narrows it") {
  Calibration forecast;
  const auto before = forecast.range("a", 2);
  CHECK(before.likely == 2);
  CHECK(before.least < 1.2);
  for (int i = 0; i < 8; ++i) forecast.learn("a", 2, 3);
  const auto after = forecast.range("a", 2);
  CHECK(after.likely > 2.5);
  CHECK(after.likely < 3.01);
  CHECK(after.likely / after.least < before.likely / before.least);
  CHECK(forecast.range("b", 2).likely == 2);
  // Errors learned in earlier runs count, but at most as much as a few measurements.
  ModelErrors many = forecast.learned();
  for (int doubling = 0; doubling < 10; ++doubling) many["a"].add(many["a"]);
  Calibration later(many);
  CHECK(later.range("a", 2).likely > 2.5);
  for (int i = 0; i < 32; ++i) later.learn("a", 2, 2);
  CHECK(later.range("a", 2).likely < 2.3);
  CHECK(later.learned().at("a").count == 32);
}

TEST_CASE("the first candidate is the default") {
  const loop::Program p = program();
  for (const CpuTarget& target : cpu_targets())
    for (const loop::Nest& nest : p.nests) {
      const auto space = schedule::candidates(p, nest, target);
      REQUIRE(!space.empty());
      CHECK(space[0].schedule == schedule::default_schedule(p, nest, target));
      for (size_t i = 0; i < space.size(); ++i)
        for (size_t j = 0; j < i; ++j) CHECK(!(space[i].schedule == space[j].schedule));
    }
}
