// Ranks and operator semantics that depend on sizes known only at run time.
#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/sym/guard.h"
#include "tests/unit/frontend/import_bytes.h"

using namespace stridec;
using namespace stridec::onnx;
using namespace stridec::onnx::bytes;

namespace {

std::vector<std::string> guards(const Imported& m) {
  std::vector<std::string> out;
  for (const sym::Guard& g : m.graph.guards) out.push_back(sym::render(g));
  return out;
}

bool has_guard(const Imported& m, const std::string& words) {
  const auto all = guards(m);
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& g) { return g.find(words) != std::string::npos; });
}

const Diagnostic& problem(const Imported& m) {
  REQUIRE(m.problems.size() == 1);
  return m.problems[0];
}

GraphBytes squeezed(const std::vector<std::string>& dims, const std::string& declared) {
  return {.nodes = {node("Squeeze", {"x"}, {"y"}, {}, "", "flat")},
          .inputs = {symbolic_input("x", dims)},
          .outputs = {declared}};
}

}  // namespace

TEST_CASE("Squeeze without axes: what is known of sizes decides") {
  const auto compiled = [](const std::vector<std::string>& dims, const ImportOptions& options = {}) {
    return import_bytes(model(squeezed(dims, of_any_rank("y"))), options);
  };
  CHECK(output_type(compiled({"1", "3", "1", "4"})) == "f32[3, 4]");
  const Imported large = compiled({"b", "1", "4"}, {.dims = {{"b", 2, 8}}, .constants = {}});
  CHECK(output_type(large) == "f32[b, 4]");
  CHECK(guards(large).empty());
  const Imported one = compiled({"b", "3", "4"}, {.dims = {{"b", 1, 1}}, .constants = {}});
  CHECK(output_type(one) == "f32[3, 4]");
  const Imported none = compiled({"b", "1"}, {.dims = {{"b", 0, 0}}, .constants = {}});
  CHECK(output_type(none) == "f32[0]");
}

TEST_CASE("Squeeze without axes: a declared rank decides, and a guard says what it takes") {
  const Imported kept = import_bytes(model(squeezed({"b", "1", "4"}, value_info("y", {-1, -1}))));
  CHECK(output_type(kept) == "f32[b, 4]");
  CHECK(has_guard(kept, "Squeeze keeps dim 0"));
  const Imported gone = import_bytes(model(squeezed({"b", "1", "4"}, value_info("y", {-1}))));
  CHECK(output_type(gone) == "f32[4]");
  CHECK(has_guard(gone, "Squeeze removes dim 0"));
  const Imported one_of_two = import_bytes(model(squeezed({"b", "n", "4"}, value_info("y", {-1, -1}))));
  CHECK(output_type(one_of_two) == "f32[select(b == 1, n, b), 4]");
  CHECK(has_guard(one_of_two, "Squeeze removes 1, those that are 1"));
  // A declared rank that the sizes cannot produce is ignored.
  CHECK(problem(import_bytes(model(squeezed({"b", "n", "4"}, value_info("y", {-1, -1, -1, -1}))))).code ==
        "unsupported");
}

TEST_CASE("Squeeze without axes: value_info, functions and readers declare ranks as well") {
  GraphBytes inner = squeezed({"b", "1", "4"}, of_any_rank("z"));
  inner.nodes.push_back(node("Relu", {"y"}, {"z"}));
  inner.value_infos = {value_info("y", {-1, -1})};
  CHECK(output_type(import_bytes(model(inner))) == "f32[b, 4]");
  inner.value_infos = {value_info("y", {-1})};
  CHECK(output_type(import_bytes(model(inner))) == "f32[4]");

  GraphBytes read = squeezed({"b", "1", "4"}, value_info("z", {-1}));
  read.nodes.push_back(node("Relu", {"y"}, {"r"}));
  read.nodes.push_back(node("ReduceMean", {"r"}, {"z"}, {attribute_int("keepdims", 1)}));
  CHECK(output_type(import_bytes(model(read))) == "f32[1]");
  read.outputs = {of_any_rank("z")};
  read.nodes.back() = node("Gemm", {"r", "w"}, {"z"});
  read.initializers = {tensor("w", 1, {4, 2}, raw_data(raw(std::vector<float>(8, 1))))};
  CHECK(output_type(import_bytes(model(read))) == "f32[b, 2]");
  read.inputs = {symbolic_input("x", {"b", "n", "4"})};
  CHECK(output_type(import_bytes(model(read))) == "f32[select(b == 1, n, b), 2]");
  read.inputs = {symbolic_input("x", {"b", "1", "4"})};
  read.nodes.back() = node("MatMul", {"r", "w"}, {"z"});
  read.outputs = {value_info("z", {-1})};
  CHECK(output_type(import_bytes(model(read))) == "f32[2]");
  read.nodes.back() = node("Unsqueeze", {"r", "axes"}, {"z"});
  read.initializers = {ints("axes", {0, 1})};
  read.outputs = {value_info("z", {-1, -1, -1})};
  CHECK(output_type(import_bytes(model(read))) == "f32[1, 1, 4]");

  GraphBytes call{.nodes = {node("flat", {"x"}, {"z"}, {}, "local")},
                  .inputs = {symbolic_input("x", {"b", "1", "4"})},
                  .outputs = {of_any_rank("z")}};
  const std::string body =
      text(25, text(1, "flat") + text(4, "p") + text(5, "q") + text(7, node("Squeeze", {"p"}, {"s"})) +
                   text(7, node("Relu", {"s"}, {"q"})) + opset("", 17).replace(0, 1, "\x4a") +
                   text(10, "local") + text(12, value_info("s", {-1, -1})));
  CHECK(output_type(import_bytes(model(call, 17, opset("local", 1) + body, 10))) == "f32[b, 4]");
}

TEST_CASE("Squeeze without axes: a rank that stays open is refused with a way out") {
  const Diagnostic d = problem(import_bytes(model(squeezed({"b", "n", "4"}, of_any_rank("y")))));
  CHECK(d.kind == ErrorKind::kUnsupported);
  CHECK(d.message ==
        "Squeeze has no axes, and the rank of 'y' depends on sizes that are not known at compile time and "
        "may be 1: "
        "dim 0 (b), dim 1 (n)");
  CHECK(d.help ==
        "give Squeeze its axes, or declare the shape of 'y' in the model, or say the sizes: --dim b=1, or "
        "--dim "
        "b=2..64");
  // A Squeeze is assumed to remove something: the dims known to be 1, or the only dim that may be 1.
  const Imported other = import_bytes(model(squeezed({"b", "1"}, of_any_rank("y"))));
  CHECK(output_type(other) == "f32[b]");
  CHECK(has_guard(other, "Squeeze keeps dim 0"));
  const Imported single = import_bytes(model(squeezed({"b", "3", "4"}, of_any_rank("y"))));
  CHECK(output_type(single) == "f32[3, 4]");
  CHECK(has_guard(single, "Squeeze removes dim 0"));
}

TEST_CASE("Squeeze without axes: one row of a slice, and counts of what data has") {
  GraphBytes slice{
      .nodes = {node("Slice", {"x", "zero", "one", "zero"}, {"s"}), node("Squeeze", {"s"}, {"y"})},
      .initializers = {ints("zero", {0}), ints("one", {1})},
      .inputs = {symbolic_input("x", {"b", "3", "4"})},
      .outputs = {of_any_rank("y")}};
  const Imported row = import_bytes(model(slice));
  CHECK(output_type(row) == "f32[3, 4]");
  CHECK(has_guard(row, "is to be removed as a size of 1"));

  GraphBytes found{.nodes = {node("NonZero", {"x"}, {"n"}), node("Squeeze", {"n"}, {"y"})},
                   .inputs = {symbolic_input("x", {"b"})},
                   .outputs = {of_any_rank("y", 7)}};
  const Imported counted = import_bytes(model(found));
  REQUIRE(counted.problems.empty());
  CHECK(counted.graph[counted.graph.top.results.at(0)].type.shape.size() == 1);
  found.outputs = {value_info("y", {}, 7)};
  CHECK(output_type(import_bytes(model(found))) == "i64[]");
}

TEST_CASE("If: a declared rank decides between branches of several ranks") {
  GraphBytes yes{.nodes = {node("Squeeze", {"x", "zero"}, {"t"})}, .outputs = {of_any_rank("t")}};
  GraphBytes no{.nodes = {node("Identity", {"x"}, {"e"})}, .outputs = {of_any_rank("e")}};
  GraphBytes g{.nodes = {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "at"}, {"d"}),
                         node("Equal", {"d", "unit"}, {"c"}),
                         node("If", {"c"}, {"q"},
                              {attribute_graph("then_branch", yes.encode()),
                               attribute_graph("else_branch", no.encode())}),
                         node("Relu", {"q"}, {"y"})},
               .initializers = {ints("zero", {0}), tensor("at", 7, {}, raw_data(raw<int64_t>({0}))),
                                tensor("unit", 7, {}, raw_data(raw<int64_t>({1})))},
               .inputs = {symbolic_input("x", {"b", "4"})},
               .outputs = {of_any_rank("y")}};
  CHECK(problem(import_bytes(model(g))).code == "unsupported-rank");
  g.outputs = {value_info("y", {-1})};
  const Imported first = import_bytes(model(g));
  CHECK(output_type(first) == "f32[4]");
  CHECK(has_guard(first, "takes the else_branch, which is left out"));
  g.outputs = {value_info("y", {-1, -1})};
  const Imported second = import_bytes(model(g));
  CHECK(output_type(second) == "f32[b, 4]");
  CHECK(has_guard(second, "takes the then_branch, which is left out"));
  const Imported fixed = import_bytes(model(g), {.dims = {{"b", 2, 8}}, .constants = {}});
  CHECK(guards(fixed).empty());
}

TEST_CASE("GatherND and ScatterND: ranks tell how many dims the indices address") {
  GraphBytes g{.nodes = {node("GatherND", {"x", "i"}, {"y"})},
               .inputs = {symbolic_input("x", {"b", "4"}), symbolic_input("i", {"n", "k"}, 7)},
               .outputs = {value_info("y", {-1, -1})}};
  const Imported rows = import_bytes(model(g));
  CHECK(output_type(rows) == "f32[n, 4]");
  CHECK(has_guard(rows, "the indices address k dims, but the model was compiled for 1"));
  g.outputs = {of_any_rank("y")};
  CHECK(problem(import_bytes(model(g))).kind == ErrorKind::kUnsupported);
  g.nodes = {node("ScatterND", {"x", "i", "u"}, {"y"})};
  g.inputs.push_back(symbolic_input("u", {"n"}));
  const Imported numbers = import_bytes(model(g));
  CHECK(output_type(numbers) == "f32[b, 4]");
  CHECK(has_guard(numbers, "the indices address k dims, but the model was compiled for 2"));
}

TEST_CASE("parameters stretch to the tensor, never the tensor to them") {
  const auto ones = [](const std::string& name, const std::vector<int64_t>& dims) {
    size_t n = 1;
    for (int64_t d : dims) n *= static_cast<size_t>(d);
    return tensor(name, 1, dims, raw_data(raw(std::vector<float>(n, 1))));
  };
  struct Case {
    std::string op;
    std::vector<std::string> dims, inputs;
    std::vector<std::vector<int64_t>> shapes;
    std::string result;
    std::string domain = "";
  };
  const Case cases[] = {
      {"PRelu", {"b", "c"}, {"x", "p"}, {{5}}, "f32[b, c]"},
      {"Gemm", {"b", "4"}, {"x", "p", "q"}, {{4, 5}, {3, 5}}, "f32[b, 5]"},
      {"Clip", {"b", "c"}, {"x", "p"}, {{5}}, "f32[b, c]"},
      {"BatchNormalization", {"b", "c"}, {"x", "p", "p", "p", "p"}, {{5}}, "f32[b, c]"},
      {"InstanceNormalization", {"b", "c", "7"}, {"x", "p", "p"}, {{5}}, "f32[b, c, 7]"},
      {"LayerNormalization", {"b", "c"}, {"x", "p"}, {{5}}, "f32[b, c]"},
      {"QuantizeLinear", {"b", "c"}, {"x", "p"}, {{5}}, "u8[b, c]"},
      {"BiasGelu", {"b", "c"}, {"x", "p"}, {{5}}, "f32[b, c]", "com.microsoft"},
      {"SkipLayerNormalization",
       {"b", "3", "4"},
       {"x", "p", "q"},
       {{2, 3, 4}, {4}},
       "f32[b, 3, 4]",
       "com.microsoft"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.op);
    GraphBytes g{.nodes = {node(one.op, one.inputs, {"y"}, {}, one.domain)},
                 .inputs = {symbolic_input("x", one.dims)},
                 .outputs = {of_any_rank("y", one.op == "QuantizeLinear" ? 2 : 1)}};
    for (size_t i = 0; i < one.shapes.size(); ++i)
      g.initializers.push_back(ones(i ? "q" : "p", one.shapes[i]));
    const Imported m = import_bytes(model(g, 17, opset("com.microsoft", 1)));
    CHECK(output_type(m) == one.result);
    CHECK(m.graph.guards.size() == 1);
    if (one.dims[1] != "c") continue;
    g.inputs = {symbolic_input("x", {"b", "1", "7"})};
    if (one.dims.size() == 2) g.inputs = {symbolic_input("x", {"b", "1"})};
    CHECK(import_bytes(model(g, 17, opset("com.microsoft", 1))).problems.size() == 1);
  }
}

TEST_CASE("Split into equal parts: a size that does not divide is refused") {
  GraphBytes g{.nodes = {node("Split", {"x"}, {"y", "z"})},
               .inputs = {symbolic_input("x", {"b"})},
               .outputs = {value_info("y", {-1}), value_info("z", {-1})}};
  CHECK(has_guard(import_bytes(model(g, 13)), "does not divide into 2 equal parts"));
  g.inputs = {symbolic_input("x", {"5"})};
  CHECK(problem(import_bytes(model(g, 13))).code == "does-not-fit");
  // Later versions make the last part shorter, which 1 in 3 parts cannot have.
  g = {.nodes = {node("Split", {"x"}, {"y", "z", "w"}, {attribute_int("num_outputs", 3)})},
       .inputs = {symbolic_input("x", {"b"})},
       .outputs = {value_info("y", {-1}), value_info("z", {-1}), value_info("w", {-1})}};
  CHECK(has_guard(import_bytes(model(g, 18)), "does not divide into 3 parts"));
}
