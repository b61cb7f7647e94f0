// Where the values of kernels come from, in the light models.
#include "compiler/loop/origin.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/node_work.h"

using namespace stridec;

namespace {

FunctionResult scheduled(const std::string& path, bool gpu) {
  frontend::Imported model = frontend::import_file(path, {.missing_weights_are_zero = true});
  REQUIRE(model.problems.empty());
  CompileOptions how{.model = path, .cpus = {"x86-64-v3"}, .use_cache = false};
  if (gpu) how.targets = {"cuda"}, how.gpus = {"sm_90a"};
  return std::move(
      compile(std::move(model.graph), how, Stage::kSchedule, std::move(model.nodes)).functions.front());
}

FunctionResult light_model(const std::string& name) {
  return scheduled(cat(STRIDEC_SOURCE_DIR "/tests/models/", name, ".onnx"), false);
}

bool is_index(const loop::Stmt& stmt) {
  return std::holds_alternative<loop::IndexValue>(stmt.node) ||
         std::holds_alternative<loop::Constant>(stmt.node);
}

// Nodes with arithmetic on floats. Other nodes may become part of an index, a mask or a place in memory.
std::set<std::string> computing_nodes(const loop::Program& lowered) {
  std::set<std::string> nodes;
  for (const loop::Nest& nest : lowered.nests)
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const auto* let = std::get_if<loop::Let>(&stmt.node);
      const bool computes =
          let ? loop::flops_of(let->op) > 0 && is_float(nest.values[let->result.value].dtype)
              : std::holds_alternative<loop::Reduce>(stmt.node);
      if (computes) nodes.insert(nest.nodes.begin(), nest.nodes.end());
    });
  return nodes;
}

// Checks the statements of a nest and returns their nodes.
std::set<std::string> nodes_of_statements(const loop::Nest& nest) {
  std::set<std::string> seen;
  const std::vector<loop::Origin> origins = loop::origins_of(nest);
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    loop::for_each_result(stmt, [&](loop::ValueId value) {
      const loop::NodeId node = origins[value.value].node;
      if (node.valid()) seen.insert(loop::text_of(node));
      CHECK_MESSAGE((node.valid() || is_index(stmt)), "%", value.value, " has no node");
    });
  });
  for (const std::string& node : seen) CHECK_MESSAGE(std::ranges::count(nest.nodes, node) == 1, node);
  return seen;
}

}  // namespace

TEST_CASE("each value of a kernel has one of the kernel's nodes, and each node that computes has values") {
  size_t nodes = 0, computing = 0;
  std::set<std::string> folded;
  for (const auto& entry : std::filesystem::directory_iterator(STRIDEC_SOURCE_DIR "/tests/models"))
    for (const bool gpu : {false, true}) {
      if (entry.path().extension() != ".onnx") continue;
      CAPTURE(entry.path().string());
      CAPTURE(gpu);
      const FunctionResult made = scheduled(entry.path().string(), gpu);
      const loop::Program& program = *made.programs().front();
      const std::set<std::string> expected = computing_nodes(made.loops);
      // A nest that was split lists all its nodes in each part, and their statements may be in one of them.
      std::set<std::string> listed, seen;
      for (const loop::Kernel& kernel : loop::kernels_of(program)) {
        CAPTURE(kernel.name);
        listed.insert(kernel.nodes.begin(), kernel.nodes.end());
        for (const loop::NestId id : kernel.nests) seen.merge(nodes_of_statements(program[id]));
      }
      for (const std::string& node : listed) {
        ++nodes;
        if (!expected.contains(node)) continue;
        ++computing;
        if (!seen.contains(node)) folded.insert(node);
      }
    }
  // The U-Net multiplies by a constant of ones, in its group norms.
  CHECK(folded == std::set<std::string>{"node 19 'node_Mul_75' (Mul)", "node 31 'node_Mul_109' (Mul)",
                                        "node 56 'node_Mul_177' (Mul)", "node 69 'node_Mul_211' (Mul)",
                                        "node 7 'node_Mul_41' (Mul)", "node 82 'node_Mul_245' (Mul)"});
  CHECK(nodes > 1000);
  CHECK(computing > nodes / 2);
}

TEST_CASE("nodes that several kernels compute, or one kernel twice, are listed with a count") {
  const auto find = [](const FunctionResult& made, const char* name) {
    const std::vector<loop::Kernel> kernels = loop::kernels_of(*made.programs().front());
    for (const schedule::RepeatedNode& node :
         schedule::repeated_nodes(made.loops, *made.programs().front(), kernels))
      if (node.node.find(name) != std::string::npos) return std::pair(node.times, node.kernels.size());
    return std::pair(1.0, size_t{0});
  };
  const FunctionResult vit = light_model("vit_b_16"), tagger = light_model("tagger"),
                       unet = light_model("unet");
  CHECK(find(vit, "'node_add' (Add)") == std::pair(4.0, size_t{2}));
  CHECK(find(vit, "'node_layer_norm' ") ==
        std::pair(2.0, size_t{1}));  // x - mean, for the variance and after
  CHECK(find(tagger, "'node_log_softmax'") == std::pair(2.0, size_t{1}));
  CHECK(find(unet, "'node_Conv_305'").second == 0);  // in both branches of an `if`, of which one runs
}
