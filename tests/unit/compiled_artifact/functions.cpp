// Artifacts of several functions through the C API: common states and weights, sizes of their own.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/op_table.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

using Floats = std::vector<float>;

graph::Data bytes_of(const Floats& values) {
  std::vector<uint8_t> bytes(sizeof(float) * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return graph::own(std::move(bytes));
}

// The state `sum`, which starts at `start`.
graph::ValueId sum_state(graph::Builder& b, int64_t width = 3, const Floats& start = {10, 20, 30}) {
  return b.state("sum", {DType::kF32, {width}}, bytes_of(start));
}

Floats large_weight() {
  Floats values(4096);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  return values;
}

// sum += x; y = w * scale.
graph::Graph add() {
  graph::Graph g;
  g.name = "add";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId x = b.input("x", {DType::kF32, {3}}), sum = sum_state(b),
                       w = b.constant("w", {DType::kF32, {4096}}, bytes_of(large_weight()));
  const graph::ValueId scale = b.input("scale", {DType::kF32, {1}});
  b.add(graph::OpKind::kUpdateState, {sum, b.add1(graph::OpKind::kAdd, {sum, x})});
  b.output("y", b.add1(graph::OpKind::kMul, {w, scale}));
  return g;
}

// out = x + w, for any number of rows; before = sum; sum = 0.
graph::Graph take() {
  graph::Graph g;
  g.name = "take";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId x = b.input("x", {DType::kF32, {sym::var("rows"), 1}});
  const graph::ValueId calls = b.state("calls", {DType::kI64, {}}, std::nullopt), sum = sum_state(b),
                       w = b.constant("w", {DType::kF32, {4096}}, bytes_of(large_weight()));
  b.output("before", sum);
  b.output("out", b.add1(graph::OpKind::kAdd, {x, w}));
  b.add(graph::OpKind::kUpdateState, {sum, b.add1(graph::OpKind::kSub, {sum, sum})});
  b.add(graph::OpKind::kUpdateState, {calls, b.add1(graph::OpKind::kAdd, {calls, b.scalar(DType::kI64, 1)})});
  return g;
}

CompileOptions options_of(const Folder& folder, const std::vector<graph::Graph>& graphs) {
  CompileOptions options;
  for (const graph::Graph& g : graphs) options.functions.push_back({g.name, write_graph(folder, g)});
  return options;
}

std::string refusal(const std::vector<graph::Graph>& graphs) {
  const Folder folder;
  try {
    compile(options_of(folder, graphs), Stage::kLoops);
  } catch (const Error& error) {
    CHECK(error.diagnostic.code == "state-differs");
    return error.diagnostic.message;
  }
  return "";
}

// A function `other` with the state `sum` of a width and a start.
graph::Graph other(int64_t width, const Floats& start) {
  graph::Graph g;
  g.name = "other";
  graph::Builder b(g, ops::shape_table());
  b.output("y", sum_state(b, width, start));
  return g;
}

}  // namespace

TEST_CASE("functions share states by name and weights by contents") {
  const Folder folder;
  const std::string library = folder.file("functions.so");
  const Compilation made = compile(options_of(folder, {add(), take()}));
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  CHECK(made.main().programs().front()->weight_bytes < 20'000);  // w once: 16,384 bytes, and two small ones
  const Loaded a(library);
  stridec_model_info info{.struct_size = sizeof info};
  REQUIRE(a.api->model_info(a.model, &info) == STRIDEC_OK);
  CHECK(info.function_count == 2);
  CHECK(info.state_count == 2);
  CHECK(std::string(info.name) == "add");

  Floats x = {1, 2, 3}, scale = {2};
  int64_t three = 0, one = 0, shape[] = {2, 1};
  const stridec_tensor in[] = {tensor_of(x, three), tensor_of(scale, one)};
  stridec_tensor y{}, out[2] = {};
  for (int i = 0; i < 2; ++i) REQUIRE(a.api->context_run(a.context, in, 2, &y, 1) == STRIDEC_OK);
  Floats rows = {5, 7};
  stridec_tensor given = in[0];
  given.data = rows.data(), given.ndim = 2, given.shape = shape;
  REQUIRE(a.api->context_run_function(a.context, 1, &given, 1, out, 2) == STRIDEC_OK);
  const auto* before = static_cast<const float*>(out[0].data);
  CHECK(Floats(before, before + 3) == Floats{12, 24, 36});
  REQUIRE(out[1].shape[0] == 2);
  const auto* sums = static_cast<const float*>(out[1].data);
  const Floats w = large_weight();
  for (size_t i = 0; i < w.size(); i += 511) {
    CHECK(sums[i] == w[i] + 5);
    CHECK(sums[w.size() + i] == w[i] + 7);
    CHECK(static_cast<const float*>(y.data)[i] == 2 * w[i]);  // valid until the next run of `add`
  }
  stridec_tensor state{};
  REQUIRE(a.api->context_state(a.context, 0, &state) == STRIDEC_OK);
  CHECK(*static_cast<const float*>(state.data) == 0);
  REQUIRE(a.api->context_reset_state(a.context, -1) == STRIDEC_OK);
  CHECK(*static_cast<const float*>(state.data) == 10);
}

TEST_CASE("functions that disagree on a state are refused in words") {
  CHECK(refusal({add(), other(4, {1, 2, 3, 4})}) ==
        "state 'sum' is f32[3] in function 'add' and f32[4] in function 'other': functions share a state of "
        "one "
        "name");
  CHECK(
      refusal({add(), other(3, {1, 2, 3})}) ==
      "state 'sum' is initialised differently in functions 'add' and 'other': functions share a state of one "
      "name");
  CHECK(refusal({add(), other(3, {10, 20, 30})}).empty());
}
