// States of artifacts through the C API: initial values from the weights, runs, saving, restoring, reset.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/states.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/op_table.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// before = sum; sum += x; calls += 1: `sum` starts at {10, 20, 30}, `calls` at zero.
graph::Graph accumulator() {
  graph::Graph g;
  g.name = "accumulator";
  graph::Builder b(g, ops::shape_table());
  const std::vector<float> start = {10, 20, 30};
  std::vector<uint8_t> bytes(sizeof(float) * start.size());
  std::memcpy(bytes.data(), start.data(), bytes.size());
  const graph::ValueId x = b.input("x", {DType::kF32, {3}});
  const graph::ValueId sum = b.state("sum", {DType::kF32, {3}}, graph::own(std::move(bytes)));
  const graph::ValueId calls = b.state("calls", {DType::kI64, {}}, std::nullopt);
  b.add(graph::OpKind::kUpdateState, {sum, b.add1(graph::OpKind::kAdd, {sum, x})});
  b.add(graph::OpKind::kUpdateState, {calls, b.add1(graph::OpKind::kAdd, {calls, b.scalar(DType::kI64, 1)})});
  b.output("before", sum);
  return g;
}

struct Accumulator : Loaded {
  using Loaded::Loaded;
  std::vector<float> run(std::vector<float> x) {
    int64_t count = 0;
    const stridec_tensor in = tensor_of(x, count);
    stridec_tensor out{};
    REQUIRE(api->context_run(context, &in, 1, &out, 1) == STRIDEC_OK);
    const float* data = static_cast<const float*>(out.data);
    return {data, data + 3};
  }
  template <class T>
  T* state(int index) {
    stridec_tensor view{};
    REQUIRE(api->context_state(context, index, &view) == STRIDEC_OK);
    return static_cast<T*>(view.data);
  }
};

using Floats = std::vector<float>;

void check_states(const std::string& library) {
  Accumulator a(library);
  CHECK(a.run({1, 2, 3}) == Floats{10, 20, 30});
  CHECK(a.run({1, 2, 3}) == Floats{11, 22, 33});
  CHECK(*a.state<int64_t>(1) == 2);

  const Floats saved(a.state<float>(0), a.state<float>(0) + 3);
  CHECK(saved == Floats{12, 24, 36});
  CHECK(a.run({1, 1, 1}) == saved);
  std::memcpy(a.state<float>(0), saved.data(), sizeof(float) * 3);
  CHECK(a.run({0, 0, 0}) == saved);

  REQUIRE(a.api->context_reset_state(a.context, -1) == STRIDEC_OK);
  CHECK(*a.state<int64_t>(1) == 0);
  CHECK(a.run({0, 0, 0}) == Floats{10, 20, 30});
  Accumulator b(library);  // another context has its own state
  CHECK(b.run({5, 5, 5}) == Floats{10, 20, 30});
  CHECK(a.run({0, 0, 0}) == Floats{10, 20, 30});
}

}  // namespace

TEST_CASE("states start at their initial values, are saved, restored and reset") {
  const Folder folder;
  const std::string source = write_graph(folder, accumulator());
  for (const char* weights_file : {"", "accumulator.weights"}) {
    const Compilation made = compile({.model = source, .weights_file = weights_file});
    // The dynamic loader does not reload a path it has loaded before.
    const std::string library = folder.file(*weights_file ? "beside.so" : "within.so");
    package::StagedArtifact(made.artifact, made.programs(), library).publish();
    check_states(library);
  }
}

namespace {

// present = past with `row` at `at`; y = present + 1. `old`: y reads past instead.
graph::Graph cache(bool old) {
  graph::Graph g;
  g.name = "cache";
  graph::Builder b(g, ops::shape_table());
  const graph::ValueId row = b.input("row", {DType::kF32, {1}}), past = b.input("past", {DType::kF32, {3}}),
                       at = b.input("at", {DType::kI64, {1}});
  const graph::ValueId present = b.add1(graph::OpKind::kScatterElements, {past, at, row},
                                        {{"dim", int64_t{0}}, {"reduction", std::string("none")}});
  b.output("present", present);
  b.output("y", b.add1(graph::OpKind::kAdd, {old ? past : present, b.scalar(DType::kF32, 1)}));
  return g;
}

std::string refusal(const std::vector<frontend::StatePattern>& patterns) {
  graph::Graph g = cache(false);
  try {
    frontend::keep_states(g, patterns);
  } catch (const Error& error) {
    return error.diagnostic.message;
  }
  return "";
}

}  // namespace

TEST_CASE("an input and an output become a state, of which only new rows are written") {
  for (const bool old : {false, true}) {
    INFO(old);
    graph::Graph g = cache(old);
    frontend::keep_states(g, {frontend::parse_state("pa*t=pre*ent")});
    CHECK(g.input_names == std::vector<std::string>{"row", "at"});
    CHECK(g.output_names == std::vector<std::string>{"y"});
    const Folder folder;
    const Compilation made = compile({.model = write_graph(folder, g)});
    int copies = 0;
    for (const loop::Nest& nest : made.main().loops.nests) copies += nest.name == "scatter_copy";
    CHECK(copies == (old ? 1 : 0));
    const std::string library = folder.file(old ? "old.so" : "new.so");
    package::StagedArtifact(made.artifact, made.programs(), library).publish();
    Loaded loaded(library);
    const auto run = [&](float value, int64_t place) {
      int64_t one[] = {1};
      stridec_tensor in[2] = {}, out{};
      for (stridec_tensor& t : in) t.device = {STRIDEC_DEVICE_CPU, 0}, t.ndim = 1, t.shape = one;
      in[0].data = &value, in[0].dtype = {STRIDEC_DTYPE_FLOAT, 32, 1};
      in[1].data = &place, in[1].dtype = {STRIDEC_DTYPE_INT, 64, 1};
      REQUIRE(loaded.api->context_run(loaded.context, in, 2, &out, 1) == STRIDEC_OK);
      const float* data = static_cast<const float*>(out.data);
      return Floats{data, data + 3};
    };
    CHECK(run(5, 1) == (old ? Floats{1, 1, 1} : Floats{1, 6, 1}));
    CHECK(run(7, 2) == (old ? Floats{1, 6, 1} : Floats{1, 6, 8}));
    CHECK(run(9, 1) == (old ? Floats{1, 6, 8} : Floats{1, 10, 8}));
  }
}

TEST_CASE("states that do not fit") {
  CHECK(refusal({{"cache", "present"}}) == "--state: the model has no input 'cache'");
  CHECK(refusal({{"p*", "new*"}}) == "--state: the model has no output 'newast' for its input 'past'");
  CHECK(refusal({{"at", "present"}}) == "--state: input 'at' is i64[1], output 'present' is f32[3]");
  CHECK(refusal({{"row", "present"}}) == "--state: dim 0 of 'row' is 1, of 'present' 3");
  CHECK_THROWS_AS(frontend::parse_state("past"), Error);
  CHECK_THROWS_AS(frontend::parse_state("past_*=present"), Error);
}
