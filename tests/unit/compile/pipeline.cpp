#include "compiler/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/compile.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

using namespace stridec;

namespace {

graph::Graph doubled() {
  graph::Graph g;
  g.name = "doubled";
  graph::Builder b(g, ops::shape_table());
  const ops::Term x(b, b.input("x", {DType::kF32, {sym::var("n")}}));
  b.output("y", (x + x).id());
  return g;
}

std::string code_of(const auto& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kUsage);
    return error.diagnostic.code;
  }
  return "";
}

int counted = 0;
void count_program(loop::Program&, const PassContext&) { ++counted; }

}  // namespace

TEST_CASE("rows have names of their own, and each option of a row is in the table of options") {
  std::set<std::string_view> names;
  for (const Pass& pass : default_pipeline()) {
    CHECK(names.insert(pass.name).second);
    CHECK(!pass.summary.empty());
    CHECK(pass.option.empty() == pass.off.empty());
    const auto known = [&](const OptionInfo& info) { return info.name == pass.option; };
    CHECK((pass.option.empty() || std::any_of(options().begin(), options().end(), known)));
  }
}

TEST_CASE("a row that is inserted runs once for each program, and a pipeline that is cut ends there") {
  CompileOptions how{.model = "doubled", .cpus = {"x86-64-v2", "x86-64-v3"}};
  how.edit_pipeline = [](Pipeline& pipeline) {
    insert_after(pipeline, "fusion", {"count", "test", RunsOn::kLoops, "Counts.", count_program});
    insert_before(pipeline, "schedules", {"count each", "test", RunsOn::kCpu, "Counts.", count_program});
  };
  counted = 0;
  CHECK(!compile(doubled(), how, Stage::kSchedule).main().variants.front().program.steps.empty());
  CHECK(counted == 1 + 2);
  how.edit_pipeline = [](Pipeline& pipeline) {
    insert_after(pipeline, "fusion", {"count", "test", RunsOn::kLoops, "Counts.", count_program});
    cut_after(pipeline, "lower");
  };
  counted = 0;
  const Compilation cut = compile(doubled(), how, Stage::kSchedule);
  CHECK(counted == 0);
  CHECK(!cut.main().loops.nests.empty());
  CHECK(cut.main().variants.empty());
}

TEST_CASE("memory is planned before the texts of kernels exist") {
  CHECK(find_pass(default_pipeline(), "memory") < find_pass(default_pipeline(), "kernels"));
  const CompileOptions how{.model = "doubled", .cpus = {"x86-64-v3"}};
  const Compilation made = compile(doubled(), how, Stage::kSchedule);
  const auto& variant = made.main().variants.front();
  CHECK(variant.kernels.empty());
  REQUIRE(!variant.scratch.empty());
  for (const schedule::Scratch& scratch : variant.scratch) CHECK(!scratch.offset.is_const(-1));
  CHECK(codegen::cpu::emit(variant).size() == variant.scratch.size());
}

TEST_CASE("a pass that an option turns off does not run; stop_after ends the compilation") {
  std::vector<std::string> ran;
  CompileOptions how{.model = "doubled", .cpus = {"x86-64-v3"}};
  how.passes = {.dump_after = {"all"}, .dump = [&](const PassDump& dump) { ran.emplace_back(dump.name); }};
  const auto has = [&](std::string_view name) { return std::ranges::count(ran, name) > 0; };
  compile(doubled(), how, Stage::kSchedule);
  CHECK(has("winograd"));
  CHECK(has("memory"));
  ran.clear();
  how.settings = {{"winograd", "false"}};
  how.passes.stop_after = "layouts";
  CHECK(compile(doubled(), how, Stage::kSchedule).stopped);
  CHECK(!has("winograd"));
  CHECK(ran.back() == "layouts");
}

TEST_CASE("options that are unknown or without effect, and passes that are not there, are usage errors") {
  CompileOptions how{.model = "doubled", .cpus = {"x86-64-v3"}};
  how.settings = {{"frobnication", "true"}};
  CHECK(code_of([&] { compile(doubled(), how, Stage::kLoops); }) == "unknown-option");
  how.settings = {{"packed_weights", "false"}};
  CHECK(code_of([&] { compile(doubled(), how, Stage::kLoops); }) == "useless-option");
  how.targets = {"cpu", "cuda"};
  CHECK(code_of([&] { compile(doubled(), how, Stage::kLoops); }).empty());
  how.settings.clear();
  how.edit_pipeline = [](Pipeline& pipeline) { cut_after(pipeline, "fission"); };
  CHECK(code_of([&] { compile(doubled(), how, Stage::kLoops); }) == "unknown-pass");
}
