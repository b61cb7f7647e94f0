// What became of each node of the light models, and of small graphs with one node of each fate.
#include "compiler/fates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "compiler/compile.h"
#include "compiler/loop/kernels.h"

using namespace stridec;
using Kind = package::NodeFate::Kind;

namespace {

FunctionResult scheduled(const std::string& path) {
  frontend::Imported model = frontend::import_file(path, {.missing_weights_are_zero = true});
  REQUIRE(model.problems.empty());
  CompileOptions how{.model = path, .cpus = {"x86-64-v3"}, .use_cache = false};
  return std::move(
      compile(std::move(model.graph), how, Stage::kSchedule, std::move(model.nodes)).functions.front());
}

}  // namespace

TEST_CASE("every node of a model has exactly one fate, and that of a node in a kernel is the kernel") {
  std::map<Kind, size_t> seen;
  for (const auto& entry : std::filesystem::directory_iterator(STRIDEC_SOURCE_DIR "/tests/models")) {
    if (entry.path().extension() != ".onnx") continue;
    CAPTURE(entry.path().string());
    const frontend::Imported listed =
        frontend::import_file(entry.path().string(), {.missing_weights_are_zero = true});
    int64_t nodes = 0;
    for (const auto& [op, count] : listed.facts.operators) nodes += count;
    const FunctionResult made = scheduled(entry.path().string());
    const loop::Program& program = *made.programs().front();
    std::map<std::string, const package::NodeFate*> fates;
    int64_t counted = 0;
    const std::vector<package::NodeFate> all = made.nodes.fates(program);
    for (const package::NodeFate& fate : all) {
      CHECK_MESSAGE(fates.emplace(fate.node, &fate).second, fate.node);
      CHECK_MESSAGE((fate.kind == Kind::kKernel) == fate.by.empty(), fate.node);
      CHECK_MESSAGE(
          (fate.kind == Kind::kKernel || fate.kind == Kind::kRoutine) == !fate.steps.empty(), fate.node);
      counted += fate.count;
      ++seen[fate.kind];
    }
    CHECK(counted == nodes);
    for (const loop::Kernel& kernel : loop::kernels_of(program))
      for (const std::string& node : kernel.nodes) {
        REQUIRE_MESSAGE(fates.contains(node), node);
        CHECK(std::ranges::count(fates[node]->steps, kernel.step) == 1);
      }
  }
  for (const Kind kind : {Kind::kKernel, Kind::kConstant, Kind::kView, Kind::kSize, Kind::kRewritten})
    CHECK(seen[kind] > 0);
}

TEST_CASE("a graph without a list of nodes has the fates of those that it names") {
  frontend::Imported model = frontend::import_file(STRIDEC_SOURCE_DIR "/tests/models/recommender.onnx",
                                                   {.missing_weights_are_zero = true});
  const Compilation made = compile(std::move(model.graph), {.model = "graph", .cpus = {"x86-64-v3"}},
                                   Stage::kSchedule);
  const auto fates = made.main().nodes.fates(*made.main().programs().front());
  CHECK(!fates.empty());
  CHECK(std::ranges::any_of(fates, [](const auto& fate) { return fate.kind == Kind::kKernel; }));
}
