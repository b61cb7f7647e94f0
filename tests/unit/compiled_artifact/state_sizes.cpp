// States whose shapes have symbols: contexts of one artifact with different sizes, and sizes that do not fit.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/frontend/states.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

using Floats = std::vector<float>;

// past f32[batch, 2, max_len] with `row` at `at` along its last dim; y is the sum over that dim.
graph::Graph cache(const std::string& name = "cache", int64_t most = 64) {
  graph::Graph g;
  g.name = name;
  graph::Builder b(g, ops::shape_table());
  const sym::Expr batch = sym::var("batch"), length = sym::var("max_len");
  const graph::ValueId row = b.input("row", {DType::kF32, {batch, 2, 1}}),
                       at = b.input("at", {DType::kI64, {batch, 2, 1}}),
                       past = b.input("past", {DType::kF32, {batch, 2, length}});
  g.facts.set_range(batch, 1, 8);
  g.facts.set_range(length, 4, most);
  g.facts.set_divisible(length, 4);
  const graph::ValueId present = b.add1(graph::OpKind::kScatterElements, {past, at, row},
                                        {{"dim", int64_t{2}}, {"reduction", std::string("none")}});
  b.output("y", b.add1(graph::OpKind::kReduceSum, {present}, {{"dims", std::vector<int64_t>{2}}}));
  b.output("present", present);
  frontend::keep_states(g, {frontend::parse_state("past=present")});
  return g;
}

std::string compiled(const Folder& folder, const graph::Graph& g, const char* file) {
  const Compilation made = compile({.model = write_graph(folder, g)});
  const std::string library = folder.file(file);
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  return library;
}

// A model and no context.
struct Opened {
  const stridec_api* api = nullptr;
  stridec_model* model = nullptr;
  char message[512] = "";

  explicit Opened(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle, dlerror());
    api = reinterpret_cast<stridec_get_api_fn>(dlsym(handle, "stridec_get_api"))(STRIDEC_API_VERSION);
    REQUIRE_MESSAGE(api->model_open(nullptr, &model, message, sizeof(message)) == STRIDEC_OK, message);
  }
  ~Opened() { api->model_close(model); }

  stridec_status create(const std::vector<stridec_size>& sizes, stridec_context** context) {
    stridec_context_options options{.struct_size = sizeof(options)};
    options.sizes = sizes.data();
    options.size_count = sizes.size();
    return api->context_create(model, &options, context, message, sizeof(message));
  }
  std::string refusal(const std::vector<stridec_size>& sizes, stridec_status expected) {
    stridec_context* context = nullptr;
    CHECK(create(sizes, &context) == expected);
    CHECK(!context);
    return message;
  }
};

struct Cache {
  Opened& model;
  stridec_context* context = nullptr;
  int64_t batch;

  Cache(Opened& m, int64_t b, int64_t length) : model(m), batch(b) {
    REQUIRE_MESSAGE(m.create({{"max_len", length}, {"batch", b}}, &context) == STRIDEC_OK, m.message);
  }
  ~Cache() { model.api->context_destroy(context); }

  // y of `rows` rows.
  Floats run(float value, int64_t place, int64_t rows, stridec_status expected = STRIDEC_OK) {
    Floats row(static_cast<size_t>(rows) * 2, value);
    std::vector<int64_t> at(row.size(), place), shape = {rows, 2, 1};
    stridec_tensor in[2] = {};
    for (stridec_tensor& t : in) t.device = {STRIDEC_DEVICE_CPU, 0}, t.ndim = 3, t.shape = shape.data();
    in[0].data = row.data(), in[0].dtype = {STRIDEC_DTYPE_FLOAT, 32, 1};
    in[1].data = at.data(), in[1].dtype = {STRIDEC_DTYPE_INT, 64, 1};
    stridec_tensor out{};
    CHECK(model.api->context_run(context, in, 2, &out, 1) == expected);
    if (expected != STRIDEC_OK) return {};
    const auto* data = static_cast<const float*>(out.data);
    return {data, data + rows * 2};
  }
  std::string error() { return model.api->context_error(context); }
};

}  // namespace

TEST_CASE("each context has its own sizes of the states") {
  const Folder folder;
  Opened model(compiled(folder, cache(), "cache.so"));
  stridec_model_info info{.struct_size = sizeof(info)};
  REQUIRE(model.api->model_info(model.model, &info) == STRIDEC_OK);
  REQUIRE(info.context_size_count == 2);
  stridec_symbol_info size{.struct_size = sizeof(size)};
  REQUIRE(model.api->model_context_size(model.model, 1, &size) == STRIDEC_OK);
  CHECK(std::string(size.name) == "max_len");
  CHECK(size.minimum == 4);
  CHECK(size.maximum == 64);
  CHECK(size.multiple == 4);
  CHECK(size.of_context == 1);
  CHECK(model.api->model_context_size(model.model, 2, &size) == STRIDEC_INVALID_ARGUMENT);
  stridec_value_info state{.struct_size = sizeof(state)};
  REQUIRE(model.api->model_state(model.model, 0, &state) == STRIDEC_OK);
  CHECK(std::string(state.shape) == "[batch, 2, max_len]");
  CHECK(state.dims[0].symbol == 0);
  CHECK(state.dims[2].symbol == 1);

  Cache small(model, 1, 4), large(model, 3, 64);
  CHECK(small.run(1, 0, 1) == Floats{1, 1});
  CHECK(small.run(2, 3, 1) == Floats{3, 3});
  CHECK(large.run(5, 63, 3) == Floats(6, 5));
  CHECK(large.run(1, 0, 3) == Floats(6, 6));
  CHECK(small.run(0, 0, 1) == Floats{2, 2});
  stridec_tensor view{};
  REQUIRE(model.api->context_state(large.context, 0, &view) == STRIDEC_OK);
  CHECK(std::vector<int64_t>(view.shape, view.shape + view.ndim) == std::vector<int64_t>{3, 2, 64});
  const auto* data = static_cast<const float*>(view.data);
  CHECK(std::accumulate(data, data + 3 * 2 * 64, 0.0f) == 36);
  REQUIRE(model.api->context_reset_state(large.context, -1) == STRIDEC_OK);
  CHECK(large.run(0, 0, 3) == Floats(6, 0));

  // A place that only a longer cache has, and another batch than the context's.
  small.run(1, 4, 1, STRIDEC_BAD_DATA);
  large.run(1, 0, 2, STRIDEC_WRONG_SHAPE);
  CHECK(large.error() == "input 'row': dim 0 (batch) is 2; the context was created for 3");
}

TEST_CASE("sizes of a context that do not fit are refused in words") {
  const Folder folder;
  Opened model(compiled(folder, cache(), "cache.so"));
  CHECK(model.refusal({}, STRIDEC_INVALID_ARGUMENT) ==
        "states have sizes that a context is created with: 'batch', 'max_len' are not given "
        "(stridec_context_options.sizes)");
  CHECK(model.refusal({{"batch", 2}}, STRIDEC_INVALID_ARGUMENT) ==
        "states have sizes that a context is created with: 'max_len' is not given "
        "(stridec_context_options.sizes)");
  CHECK(model.refusal({{"batch", 2}, {"max_len", 8}, {"length", 8}}, STRIDEC_INVALID_ARGUMENT) ==
        "no state of the model has the size 'length'; its states have 'batch', 'max_len'");
  CHECK(model.refusal({{"batch", 2}, {"max_len", 8}, {nullptr, 8}}, STRIDEC_INVALID_ARGUMENT) ==
        "no state of the model has the size '(null)'; its states have 'batch', 'max_len'");
  CHECK(model.refusal({{"batch", 2}, {"batch", 2}, {"max_len", 8}}, STRIDEC_INVALID_ARGUMENT) ==
        "the size 'batch' is given twice");
  CHECK(model.refusal({{"batch", -2}, {"max_len", 8}}, STRIDEC_INVALID_ARGUMENT) ==
        "the size 'batch' is negative");
  CHECK(model.refusal({{"batch", 9}, {"max_len", 8}}, STRIDEC_WRONG_SHAPE) ==
        "a context with batch 9; this artifact serves 1..8");
  CHECK(model.refusal({{"batch", 2}, {"max_len", 10}}, STRIDEC_WRONG_SHAPE) ==
        "a context with max_len 10; this artifact serves multiples of 4");

  Cache c(model, 2, 8);
  Floats saved(2 * 2 * 12);
  std::vector<int64_t> shape = {2, 2, 12};
  stridec_tensor tensor{};
  tensor.data = saved.data(), tensor.device = {STRIDEC_DEVICE_CPU, 0}, tensor.ndim = 3;
  tensor.dtype = {STRIDEC_DTYPE_FLOAT, 32, 1}, tensor.shape = shape.data();
  CHECK(model.api->context_write_state(c.context, "past", &tensor) == STRIDEC_WRONG_SHAPE);
  CHECK(c.error() ==
        "state 'past': its shape is [2, 2, 8]; [2, 2, 12] given; dim 2 (max_len) is 8 in this context");
}

TEST_CASE("functions that share a state serve the sizes that all of them do") {
  const Folder folder;
  const Compilation made = compile({.functions = {{"long", write_graph(folder, cache("long", 64))},
                                                  {"short", write_graph(folder, cache("short", 16))}}});
  const std::string library = folder.file("both.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Opened model(library);
  CHECK(model.refusal({{"batch", 2}, {"max_len", 64}}, STRIDEC_WRONG_SHAPE) ==
        "a context with max_len 64; this artifact serves 4..16");
  Cache c(model, 2, 16);
  CHECK(c.run(1, 15, 2) == Floats(4, 1));
}

// The dims of a state are expressions, and a guard is about them alone.
TEST_CASE("compiled code and the interpreter agree on states of symbolic sizes") {
  graph::Graph g;
  g.name = "expressions";
  graph::Builder b(g, ops::shape_table());
  const sym::Expr n = sym::var("n"), m = sym::var("m");
  const graph::ValueId x = b.input("x", {DType::kF32, {n}});
  b.input("y", {DType::kF32, {m}});
  const graph::ValueId sum = b.state("sum", {DType::kF32, {2 * m + 1, n}}, std::nullopt);
  g.facts.set_range(n, 0, 100);
  g.facts.set_range(m, 0, 100);
  const graph::ValueId next = b.add1(graph::OpKind::kAdd, {sum, x});
  b.add(graph::OpKind::kUpdateState, {sum, next});
  b.output("next", next);
  const loop::Program program = ops::lower(g);
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {3, 0}, {2, 7}, {1, 1}}) {
    INFO(rows, " ", columns);
    loop::HostTensor in = loop::make_tensor(DType::kF32, {columns}),
                     none = loop::make_tensor(DType::kF32, {rows});
    for (int64_t i = 0; i < columns; ++i) loop::set_number(in, i, static_cast<double>(i) + 0.5);
    std::vector<loop::HostTensor> states = {loop::make_tensor(DType::kF32, {2 * rows + 1, columns})};
    for (int64_t i = 0; i < loop::element_count(states[0]); ++i)
      loop::set_number(states[0], i, static_cast<double>(3 * i));
    std::vector<loop::HostTensor> same = states;
    const std::map<std::string, int64_t> sizes = {{"n", columns}, {"m", rows}};
    const auto want = loop::interpret(program, {in, none}, {.states = &states, .context_sizes = sizes});
    codegen::cpu::CompiledProgram code(program, {.context_sizes = sizes});
    const auto got = code.run({in, none}, &same);
    CHECK(got[0].shape == std::vector<int64_t>{2 * rows + 1, columns});
    CHECK(got[0].bytes == want[0].bytes);
    CHECK(same[0].bytes == states[0].bytes);
  }
  // An input that contradicts the context.
  const loop::HostTensor in = loop::make_tensor(DType::kF32, {4}), none = loop::make_tensor(DType::kF32, {1});
  try {
    loop::interpret(program, {in, none}, {.context_sizes = {{"n", 5}, {"m", 1}}});
    FAIL("no refusal");
  } catch (const Error& error) {
    CHECK(error.diagnostic.message == "input 'x': dim 0 (n) is 4, expected 5");
  }
}

TEST_CASE("a symbol whose input becomes a state comes from another input, or from the context") {
  const graph::Graph g = cache();
  REQUIRE(g.symbols.size() == 2);
  CHECK(g.input_names == std::vector<std::string>{"row", "at"});
  CHECK(g.symbols[0].input == 0);
  CHECK(g.symbols[1].input == -1);
  // As text, and back.
  const graph::Graph again = graph::parse(graph::to_string(g));
  CHECK(graph::to_string(again) == graph::to_string(g));
}
