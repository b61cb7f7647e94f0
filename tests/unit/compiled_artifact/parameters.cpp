// Replaceable parameters through the C API: each context has its own values, and derived ones follow.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/op_table.h"
#include "compiler/package/artifact.h"
#include "tests/unit/compiled_artifact/harness.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

using Floats = std::vector<float>;
constexpr int64_t kIn = 40, kOut = 33;  // neither is a multiple of a panel

graph::Data bytes_of(const Floats& values) {
  std::vector<uint8_t> bytes(sizeof(float) * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return graph::own(std::move(bytes));
}

Floats weights(float scale) {
  Floats out;
  for (int64_t i = 0; i < kIn * kOut; ++i) out.push_back(scale * static_cast<float>(i * 37 % 101 - 50) / 64);
  return out;
}

// y = x w: the product reads panels that are packed from w.
graph::Graph product(float scale = 1) {
  graph::Graph g;
  g.name = "product";
  graph::Builder b(g, ops::shape_table());
  b.set_replaceable([](std::string_view name, const graph::Type&) { return name == "w"; });
  const graph::ValueId x = b.input("x", {DType::kF32, {sym::var("batch"), kIn}});
  const graph::ValueId w = b.constant("w", {DType::kF32, {kIn, kOut}}, bytes_of(weights(scale)));
  b.output("y", ops::matmul(ops::Term(b, x), ops::Term(b, w)).id());
  return g;
}

// y = |x w|, with the same w.
graph::Graph magnitude(float scale = 1) {
  graph::Graph g = product(scale);
  g.name = "magnitude";
  g.output_names.clear();
  const graph::ValueId y = g.top.results.front();
  g.top.results.clear();
  graph::Builder b(g, ops::shape_table());
  b.output("y", b.add1(graph::OpKind::kAbs, {y}));
  return g;
}

// A state that has the name of the product's parameter.
graph::Graph state() {
  graph::Graph g;
  g.name = "state";
  graph::Builder b(g, ops::shape_table());
  b.output("y", b.state("w", {DType::kF32, {3}}, bytes_of({1, 2, 3})));
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
    return error.diagnostic.code + ": " + error.diagnostic.message;
  }
  return "";
}

struct Product : Loaded {
  using Loaded::Loaded;
  Floats run(int32_t function = 0) {
    Floats x(static_cast<size_t>(3 * kIn));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    int64_t shape[] = {3, kIn};
    stridec_tensor in = matrix(x, shape), out{};
    REQUIRE(api->context_run_function(context, function, &in, 1, &out, 1) == STRIDEC_OK);
    const float* data = static_cast<const float*>(out.data);
    return {data, data + 3 * kOut};
  }
  static stridec_tensor matrix(Floats& values, int64_t* shape) {
    int64_t count = 0;
    stridec_tensor tensor = tensor_of(values, count);
    tensor.ndim = 2;
    tensor.shape = shape;
    return tensor;
  }
  stridec_status write(const char* name, Floats values, std::vector<int64_t> shape,
                       std::vector<int64_t> strides = {}) {
    stridec_tensor tensor = matrix(values, shape.data());
    tensor.ndim = static_cast<int32_t>(shape.size());
    if (!strides.empty()) tensor.strides = strides.data();
    return api->context_write_state(context, name, &tensor);
  }
  Floats read() {
    Floats out(static_cast<size_t>(kIn * kOut));
    int64_t shape[] = {kIn, kOut};
    stridec_tensor tensor = matrix(out, shape);
    REQUIRE(api->context_read_state(context, "w", &tensor) == STRIDEC_OK);
    return out;
  }
};

Floats scaled(Floats values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

}  // namespace

TEST_CASE("a context writes and reads parameters, and what is derived from them follows") {
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, product())});
  CHECK(made.main().loops.parameters.size() == 1);
  REQUIRE_MESSAGE(made.main().derivations.size() == 1, "the weight is packed");
  const std::string library = folder.file("product.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Product a(library), b(library);
  const Floats first = a.run();
  CHECK(a.read() == weights(1));
  REQUIRE_MESSAGE(a.write("w", weights(2), {kIn, kOut}) == STRIDEC_OK, a.api->context_error(a.context));
  CHECK(a.run() == scaled(first, 2));
  CHECK(a.read() == weights(2));
  CHECK(b.run() == first);  // another context keeps the artifact's
  // A transposed tensor.
  Floats turned(static_cast<size_t>(kIn * kOut));
  const Floats four = weights(4);
  for (int64_t i = 0; i < kIn; ++i)
    for (int64_t j = 0; j < kOut; ++j)
      turned[static_cast<size_t>(j * kIn + i)] = four[static_cast<size_t>(i * kOut + j)];
  REQUIRE(a.write("w", turned, {kIn, kOut}, {1, kIn}) == STRIDEC_OK);
  CHECK(a.run() == scaled(first, 4));
}

TEST_CASE("a parameter of another name, shape or type is refused, and nothing changes") {
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, product())});
  const std::string library = folder.file("refused.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Product a(library);
  const Floats first = a.run();
  const auto refused = [&](stridec_status status, stridec_status wanted, const std::string& sentence) {
    CHECK(status == wanted);
    CHECK_MESSAGE(std::string(a.api->context_error(a.context)).find(sentence) != std::string::npos,
                  a.api->context_error(a.context));
  };
  refused(a.write("v", weights(2), {kIn, kOut}), STRIDEC_INVALID_ARGUMENT,
          "there is no state or replaceable parameter 'v'");
  refused(a.write("w", weights(2), {kOut, kIn}), STRIDEC_WRONG_SHAPE, "its shape is [40, 33]");
  refused(a.write("w", weights(2), {kIn * kOut}), STRIDEC_WRONG_TYPE, "");
  CHECK(a.run() == first);
}

TEST_CASE("a derivation computes sums from zero every time") {
  graph::Graph g;
  g.name = "sums";
  graph::Builder b(g, ops::shape_table());
  b.set_replaceable([](std::string_view name, const graph::Type&) { return name == "w"; });
  const graph::ValueId x = b.input("x", {DType::kF32, {4}});
  const graph::ValueId w = b.constant("w", {DType::kF32, {3}}, bytes_of({1, 2, 3}));
  const graph::ValueId zeros = b.constant("zeros", {DType::kF32, {4}}, bytes_of({0, 0, 0, 0}));
  const graph::ValueId at = b.integers({1, 1, 3});
  const graph::ValueId sums = b.add1(graph::OpKind::kScatterElements, {zeros, at, w},
                                     {{"dim", int64_t{0}}, {"reduction", std::string("add")}});
  b.output("y", b.add1(graph::OpKind::kAdd, {x, sums}));
  const Folder folder;
  const Compilation made = compile({.model = write_graph(folder, g)});
  const std::string library = folder.file("sums.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Product a(library);
  const auto run = [&] {
    Floats zero(4);
    int64_t count = 0;
    const stridec_tensor in = tensor_of(zero, count);
    stridec_tensor out{};
    REQUIRE(a.api->context_run(a.context, &in, 1, &out, 1) == STRIDEC_OK);
    const float* data = static_cast<const float*>(out.data);
    return Floats{data, data + 4};
  };
  CHECK(run() == Floats{0, 3, 0, 3});
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE(a.write("w", {10, 20, 30}, {3}) == STRIDEC_OK);
    CHECK(run() == Floats{0, 30, 0, 30});
  }
}

TEST_CASE("functions share parameters by name, and what they derive from them equally") {
  const Folder folder;
  const Compilation made = compile(options_of(folder, {product(), magnitude()}));
  for (const FunctionResult& function : made.functions) CHECK(function.derivations.size() == 1);
  const std::string library = folder.file("functions.so");
  package::StagedArtifact(made.artifact, made.programs(), library).publish();
  Product a(library), b(library);
  stridec_model_info info{.struct_size = sizeof info};
  REQUIRE(a.api->model_info(a.model, &info) == STRIDEC_OK);
  CHECK(info.parameter_count == 1);
  const Floats first[] = {a.run(0), a.run(1)};
  CHECK(first[0] != first[1]);
  float scale = 1;
  for (const int32_t next : {0, 1}) {  // the function that runs first after a write
    scale *= 2;
    REQUIRE(a.write("w", weights(scale), {kIn, kOut}) == STRIDEC_OK);
    CHECK(a.run(next) == scaled(first[next], scale));
    CHECK(a.run(1 - next) == scaled(first[1 - next], scale));
  }
  for (const int32_t function : {0, 1}) CHECK(b.run(function) == first[function]);
  // The end of the weights section is what compiling the new values gives.
  const Folder other;
  const Compilation wanted = compile(options_of(other, {product(scale), magnitude(scale)}));
  const std::string second = other.file("functions.so");
  package::StagedArtifact(wanted.artifact, wanted.programs(), second).publish();
  Product c(second);
  const auto section = [](Product& of) {
    uint64_t offset = 0, count = 0;
    const void* bytes = nullptr;
    REQUIRE(of.api->context_parameters(of.context, &offset, &bytes, &count) == STRIDEC_OK);
    return std::string(static_cast<const char*>(bytes), count);
  };
  // The weights, and one packed copy for both.
  CHECK(section(a).size() > 2 * sizeof(float) * kIn * kOut);
  CHECK(section(a).size() < 3 * sizeof(float) * kIn * kOut);
  CHECK(section(a) == section(c));
}

TEST_CASE("functions that disagree on a parameter are refused in words") {
  CHECK(refusal({product(1), magnitude(2)}) ==
        "parameter-differs: parameter 'w' is initialised differently in functions 'product' and 'magnitude': "
        "functions share a parameter of one name");
  CHECK(refusal({product(), state()}) ==
        "parameter-is-state: 'w' is a replaceable parameter of function 'product' and a state of function "
        "'state'");
  CHECK(refusal({product(), magnitude()}).empty());
}
