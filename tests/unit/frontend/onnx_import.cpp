#include "compiler/frontend/onnx/import.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/proto.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/frontend/onnx/schema.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"
#include "tests/unit/frontend/import_bytes.h"

using namespace stridec;
using namespace stridec::onnx;
using namespace stridec::onnx::bytes;

namespace {

int count_ops(const graph::Graph& g, graph::OpKind kind) {
  int n = 0;
  for (const graph::Node& node : g.nodes) n += node.kind == kind;
  return n;
}

}  // namespace

TEST_CASE("chains of sizes disappear") {
  // y = reshape(x, concat(shape(x)[0:1], [-1]))
  GraphBytes g{.nodes = {node("Shape", {"x"}, {"s"}), node("Slice", {"s", "zero", "one"}, {"b"}),
                         node("Concat", {"b", "rest"}, {"t"}, {attribute_int("axis", 0)}),
                         node("Reshape", {"x", "t"}, {"y"})},
               .initializers = {ints("zero", {0}), ints("one", {1}), ints("rest", {-1})},
               .inputs = {symbolic_input("x", {"batch", "3", "length"})},
               .outputs = {value_info("y", {-1, -1})}};
  Imported m = import_bytes(model(g));
  CHECK(output_type(m) == "f32[batch, 3*length]");
  graph::eliminate_dead_code(m.graph);
  CHECK(m.graph.nodes.size() == 1);
  CHECK(m.graph.guards.empty());
}

TEST_CASE("dims of inputs: expressions, opaque names, ranges, fixed symbols") {
  GraphBytes g{.nodes = {node("Relu", {"x"}, {"y"})},
               .inputs = {symbolic_input("x", {"batch", "8*h8", "floor(q/2) or so"})},
               .outputs = {value_info("y", {-1, -1, -1})}};
  const std::string content = model(g);
  CHECK(output_type(import_bytes(content)) == "f32[batch, 8*h8, `floor(q/2) or so`]");
  const Imported ranged =
      import_bytes(content, {.dims = {{"batch", 1, 64, 8}, {"h8", 3, 3}}, .constants = {}});
  CHECK(output_type(ranged) == "f32[batch, 24, `floor(q/2) or so`]");
  CHECK(ranged.graph.facts.bounds(sym::var("batch")).hi == 64);
  CHECK(ranged.graph.facts.known_divisor(sym::var("batch")) == 8);
  try {
    import_bytes(content, {.dims = {{.name = "bath"}}, .constants = {}});
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kUsage);
    CHECK(e.diagnostic.message == "the model has no dim 'bath'");
    CHECK(e.diagnostic.help == "its dims are batch, floor(q/2) or so, h8");
  }
}

TEST_CASE("sums of sizes of other inputs are expressions, sums of unknown sizes are names") {
  GraphBytes g{.nodes = {node("Relu", {"m"}, {"y"}), node("Relu", {"p"}, {"z"}), node("Relu", {"s"}, {"w"})},
               .inputs = {symbolic_input("m", {"past + sequence"}), symbolic_input("p", {"past"}),
                          symbolic_input("s", {"sequence"})},
               .outputs = {value_info("y", {-1})}};
  CHECK(output_type(import_bytes(model(g))) == "f32[past + sequence]");
  g.inputs.pop_back();
  g.nodes.pop_back();
  CHECK(output_type(import_bytes(model(g))) == "f32[`past + sequence`]");
}

TEST_CASE("everything unsupported is listed at once, and what depends on it is not") {
  GraphBytes g{.nodes = {node("Nowhere", {"x"}, {"a"}, {}, "com.acme", "first"), node("Relu", {"a"}, {"b"}),
                         node("Cast", {"x"}, {"c"}, {attribute_int("to", 8)}, "", "second"),
                         node("Gelu", {"x"}, {"d"}), node("MatMul", {"x", "x"}, {"e"})},
               .inputs = {symbolic_input("x", {"2", "3"})},
               .outputs = {value_info("b", {-1}), value_info("c", {-1}), value_info("d", {-1}),
                           value_info("e", {-1})}};
  const Imported m = import_bytes(model(g, 17, opset("com.acme", 1)));
  REQUIRE(m.problems.size() == 4);
  CHECK(m.problems[0].message == "operator 'com.acme.Nowhere' is unknown");
  CHECK(m.problems[0].where.node == "node 0 'first'");
  CHECK(m.problems[0].where.op == "Nowhere (domain com.acme, version 1)");
  CHECK(m.problems[0].notes == std::vector<std::string>{"input 'x' f32[2, 3]"});
  CHECK(m.problems[1].code == "unsupported-dtype");
  CHECK(m.problems[2].kind == ErrorKind::kMalformed);
  CHECK(m.problems[2].message ==
        "operator 'Gelu' does not exist in version 17 of ai.onnx; it came with version 20");
  CHECK(m.problems[3].kind == ErrorKind::kDoesNotFit);
}

TEST_CASE("softmax before and from version 13") {
  GraphBytes g{.nodes = {node("Softmax", {"x"}, {"y"})},
               .inputs = {symbolic_input("x", {"2", "3", "4"})},
               .outputs = {value_info("y", {2, 3, 4})}};
  const auto reduced = [&](int version) {
    const Imported m = import_bytes(model(g, version));
    for (const graph::Node& n : m.graph.nodes)
      if (n.kind == graph::OpKind::kReduceMax) return n.attributes.integers("dims");
    return std::vector<int64_t>{};
  };
  CHECK(reduced(12) == std::vector<int64_t>{1, 2});
  CHECK(reduced(13) == std::vector<int64_t>{2});
}

TEST_CASE("hardmax of one number") {
  for (const int version : {11, 13}) {
    const std::vector<std::string> axis = {attribute_int("axis", version < 13 ? 0 : -1)};
    GraphBytes g{.nodes = {node("Hardmax", {"x"}, {"y"}, axis)},
                 .inputs = {symbolic_input("x", {})},
                 .outputs = {value_info("y", {})}};
    const Imported m = import_bytes(model(g, version));
    CHECK(m.problems.empty());
    CHECK(output_type(m) == "f32[]");
  }
}

TEST_CASE("axes that have to be given and are not") {
  GraphBytes g{.nodes = {node("Unsqueeze", {"x"}, {"y"})},
               .inputs = {symbolic_input("x", {"2"})},
               .outputs = {value_info("y", {-1})}};
  const Imported m = import_bytes(model(g, 11));
  REQUIRE(m.problems.size() == 1);
  CHECK(m.problems[0].message == "axes must be given");
}

TEST_CASE("a branch that is chosen at compile time is all that is left") {
  GraphBytes yes{.nodes = {node("Relu", {"x"}, {"r"})}, .outputs = {value_info("r", {2})}};
  GraphBytes no{.nodes = {node("Nowhere", {"x"}, {"r"}, {}, "com.acme")}, .outputs = {value_info("r", {2})}};
  GraphBytes g{.nodes = {node("If", {"c"}, {"y"},
                              {attribute_graph("then_branch", yes.encode()),
                               attribute_graph("else_branch", no.encode())})},
               .initializers = {tensor("c", 9, {}, raw_data(std::string(1, '\1')))},
               .inputs = {symbolic_input("x", {"2"})},
               .outputs = {value_info("y", {2})}};
  const Imported m = import_bytes(model(g, 17, opset("com.acme", 1)));
  CHECK(output_type(m) == "f32[2]");
  CHECK(count_ops(m.graph, graph::OpKind::kIf) == 0);
}

// y = If(c) then_nodes else else_nodes; both branches produce r.
GraphBytes choosing(const std::vector<std::string>& then_nodes, const std::vector<std::string>& else_nodes) {
  const GraphBytes yes{.nodes = then_nodes, .outputs = {value_info("r", {})}},
      no{.nodes = else_nodes, .outputs = {value_info("r", {})}};
  return {.nodes = {node(
              "If", {"c"}, {"y"},
              {attribute_graph("then_branch", yes.encode()), attribute_graph("else_branch", no.encode())})},
          .initializers = {ints("eight", {2, 2, 4}), ints("five", {2, 5})},
          .inputs = {symbolic_input("x", {"2", "8"}), symbolic_input("c", {}, 9)},
          .outputs = {value_info("y", {-1, -1, -1})}};
}

std::string check_sentence(Imported m) {
  graph::eliminate_dead_code(m.graph);
  for (const graph::Node& n : m.graph.nodes)
    if (n.attributes.integer_or("check", 0)) return n.attributes.text("sentence");
  return "";
}

TEST_CASE("a branch that cannot fit is left out, and a run that takes it ends") {
  const std::string fits = node("Reshape", {"x", "eight"}, {"r"}),
                    other = node("Reshape", {"x", "five"}, {"r"}, {}, "", "far");
  for (const bool swapped : {false, true}) {
    const Imported m = import_bytes(model(swapped ? choosing({other}, {fits}) : choosing({fits}, {other})));
    CHECK(output_type(m) == "f32[2, 2, 4]");
    CHECK(count_ops(m.graph, graph::OpKind::kIf) == 0);
    const std::string sentence = check_sentence(m);
    CHECK(sentence.find(swapped ? "then_branch" : "else_branch") != std::string::npos);
    CHECK(sentence.find("far") != std::string::npos);
    CHECK(sentence.find("--dim") != std::string::npos);
  }
  const Imported neither = import_bytes(model(choosing({other}, {other})));
  REQUIRE(neither.problems.size() == 1);
  CHECK(neither.problems[0].kind == ErrorKind::kDoesNotFit);
}

TEST_CASE("an If of two ranks is the branch that what follows takes") {
  GraphBytes g = choosing({node("Reshape", {"x", "eight"}, {"r"})}, {node("Identity", {"x"}, {"r"})});
  CHECK(output_type(import_bytes(model(g))) == "f32[2, 2, 4]");  // as y is declared
  g.outputs = {of_any_rank("y")};
  CHECK(import_bytes(model(g)).problems.size() == 1);  // both may be
  g.nodes.push_back(node("Transpose", {"y"}, {"z"}, {attribute_ints("perm", {2, 0, 1})}));
  g.outputs = {value_info("z", {-1, -1, -1})};
  const Imported m = import_bytes(model(g));
  CHECK(output_type(m) == "f32[4, 2, 2]");
  REQUIRE(m.graph.guards.size() + !check_sentence(m).empty() == 1);
  const std::string sentence = m.graph.guards.empty() ? check_sentence(m) : sym::render(m.graph.guards[0]);
  CHECK(sentence.find("else_branch") != std::string::npos);
}

TEST_CASE("an input's value may be promised: it stays an input, and the run checks it") {
  const GraphBytes g{.nodes = {node("Equal", {"rate", "fast"}, {"c"}), node("Where", {"c", "a", "b"}, {"s"}),
                               node("Reshape", {"x", "s"}, {"y"})},
                     .initializers = {tensor("fast", 7, {}, raw_data(raw<int64_t>({16000}))),
                                      ints("a", {2, 4}), ints("b", {4, 2})},
                     .inputs = {symbolic_input("x", {"8"}), symbolic_input("rate", {}, 7)},
                     .outputs = {value_info("y", {-1, -1})}};
  for (const int64_t rate : {16000, 8000}) {
    const Imported m = import_bytes(model(g), {.input_values = {{"rate", {rate}}}});
    CHECK(output_type(m) == (rate == 16000 ? "f32[2, 4]" : "f32[4, 2]"));
    CHECK(m.graph.input_names == std::vector<std::string>{"x", "rate"});
    CHECK(check_sentence(m).find("input 'rate' is {0}") == 0);
  }
  CHECK_THROWS_AS(import_bytes(model(g), {.input_values = {{"rte", {1}}}}), Error);
  CHECK_THROWS_AS(import_bytes(model(g), {.input_values = {{"x", {1}}}}), Error);
}

TEST_CASE("a promised value is one that the input's type holds, one for each element") {
  struct Row {
    int type;  // of ONNX
    std::vector<std::string> dims;
    std::vector<int64_t> values;
    std::string message, help;  // empty: it is taken
  };
  const std::vector<Row> rows = {
      {9, {}, {1}, "", ""},
      {9, {}, {7}, "input 'v' is bool[], which cannot hold 7", "write --input-value v=true, or false"},
      {7, {"2"}, {6}, "input 'v' is i64[2]: 1 value is given for 2 elements", "write --input-value v=1,2"},
      {7, {}, {1, 2}, "input 'v' is i64[]: 2 values are given for 1 element", "write --input-value v=1"},
      {9,
       {"6"},
       {0},
       "input 'v' is bool[6]: 1 value is given for 6 elements",
       "write --input-value v=true,true,true,true,..."},
      {3, {}, {-128}, "", ""},
      {3, {}, {128}, "input 'v' is i8[], which cannot hold 128", "its values are -128 to 127"},
      {2, {}, {-1}, "input 'v' is u8[], which cannot hold -1", "its values are 0 to 255"},
      {13, {}, {INT64_MAX}, "", ""},
      {7, {"0"}, {1}, "input 'v' is i64[0], which has no elements", "leave it open"},
  };
  for (const Row& row : rows) {
    const GraphBytes g{.nodes = {node("Identity", {"v"}, {"y"})},
                       .inputs = {symbolic_input("v", row.dims, row.type)},
                       .outputs = {symbolic_input("y", row.dims, row.type)}};
    Diagnostic said;
    try {
      import_bytes(model(g), {.input_values = {{"v", row.values}}});
    } catch (const Error& error) {
      said = error.diagnostic;
    }
    CHECK(said.message == row.message);
    CHECK(said.help == row.help);
  }
}

TEST_CASE("If: an input whose value decides between branches of several ranks can be fixed") {
  GraphBytes yes{.nodes = {node("Unsqueeze", {"x", "zero"}, {"t"})}, .outputs = {of_any_rank("t")}};
  GraphBytes no{.nodes = {node("Identity", {"x"}, {"e"})}, .outputs = {of_any_rank("e")}};
  GraphBytes g{
      .nodes = {node("Equal", {"rate", "fast"}, {"c"}), node("If", {"c"}, {"y"},
                                                             {attribute_graph("then_branch", yes.encode()),
                                                              attribute_graph("else_branch", no.encode())})},
      .initializers = {ints("zero", {0}), tensor("fast", 7, {}, raw_data(raw<int64_t>({16000})))},
      .inputs = {symbolic_input("x", {"b", "4"}), symbolic_input("rate", {}, 7)},
      .outputs = {of_any_rank("y")}};
  const Imported open = import_bytes(model(g));
  REQUIRE(open.problems.size() == 1);
  CHECK(open.problems[0].help ==
        "an input decides which branch runs: fix its value, as in --input-value rate=1");
  for (const int64_t rate : {16000, 8000}) {
    const Imported fixed = import_bytes(model(g), {.input_values = {{"rate", {rate}}}});
    CHECK(output_type(fixed) == (rate == 16000 ? "f32[1, b, 4]" : "f32[b, 4]"));
  }
  // The declared rank keeps one branch. A run that takes the other one fails, and the message says how to
  // keep it.
  g.outputs = {value_info("y", {-1, -1})};
  const Imported declared = import_bytes(model(g));
  CHECK(check_sentence(declared).find("fix the input's value for it, as in --input-value rate=1") !=
        std::string::npos);
}

TEST_CASE("placeholders for names of dims are sizes of their own") {
  for (const char* placeholder : {"?", "-1", "None", "*", " ", ""}) {
    CAPTURE(placeholder);
    GraphBytes g{.nodes = {node("Relu", {"x"}, {"y"}), node("Relu", {"z"}, {"w"})},
                 .inputs = {symbolic_input("x", {placeholder, "3", placeholder}),
                            symbolic_input("z", {placeholder, "unk__7", "unk__7"})},
                 .outputs = {value_info("y", {-1, -1, -1}), value_info("w", {-1, -1, -1})}};
    const Imported m = import_bytes(model(g));
    CHECK(output_type(m) == "f32[x.0, 3, x.2]");
    CHECK(output_type(m, 1) == "f32[z.0, unk__7, unk__7]");
  }
}

TEST_CASE("an output declared with another shape than is computed has the computed one, with a warning") {
  const auto declared = [](const std::string& output, const std::vector<std::string>& input) {
    return import_bytes(model({.nodes = {node("Relu", {"x"}, {"y"})},
                               .inputs = {symbolic_input("x", input)},
                               .outputs = {output}}));
  };
  const auto warning = [&](const std::string& output, const std::vector<std::string>& input) {
    const Imported m = declared(output, input);
    CHECK(m.problems.empty());
    return m.warnings.empty() ? "" : m.warnings[0].where.tensor + ": " + m.warnings[0].message;
  };
  CHECK(warning(value_info("y", {-1, 6}), {"n", "6"}) == "");
  CHECK(warning(value_info("y", {7, 6}), {"n", "6"}) ==
        "output 'y': the model declares f32[7, 6], but computes f32[n, 6]");
  CHECK(warning(value_info("y", {7, 6}), {"4", "6"}) ==
        "output 'y': the model declares f32[7, 6], but computes f32[4, 6]");
  CHECK(warning(value_info("y", {-1}), {"n", "6"}) ==
        "output 'y': the model declares f32[?], but computes f32[n, 6]");
  CHECK(warning(value_info("y", {}), {"n", "6"}) ==
        "output 'y': the model declares f32[], but computes f32[n, 6]");
  CHECK(warning(symbolic_input("y", {"m", "n"}), {"n", "m"}) == "");
  const Imported m = declared(value_info("y", {-1, 6}, 11), {"n", "6"});
  REQUIRE(m.problems.size() == 1);
  CHECK(m.problems[0].code == "declared-type");
}

TEST_CASE("sequences of known length live in the importer alone") {
  GraphBytes g{.nodes = {node("SequenceConstruct", {"x", "x"}, {"s"}), node("SequenceAt", {"s", "i"}, {"a"}),
                         node("ConcatFromSequence", {"s"}, {"y"}, {attribute_int("axis", 0)}),
                         node("SequenceLength", {"s"}, {"n"})},
               .initializers = {tensor("i", 7, {}, raw_data(raw<int64_t>({-1})))},
               .inputs = {symbolic_input("x", {"batch"})},
               .outputs = {value_info("y", {-1}), value_info("a", {-1}), value_info("n", {}, 7)}};
  const Imported m = import_bytes(model(g));
  CHECK(output_type(m) == "f32[2*batch]");
  CHECK(output_type(m, 1) == "f32[batch]");
  CHECK(output_type(m, 2) == "i64[]");
}

TEST_CASE("a gradient at constants is one of unknowns: nothing is folded into what is differentiated") {
  // y = x * w + b with w = 1 and b = -0: dy/dw = x, dy/db = 1 although y folds to x.
  const auto text_attribute = [](const std::string& name, const std::vector<std::string>& values, bool list) {
    std::string out = text(1, name) + number(20, list ? 8 : 3);
    for (const std::string& value : values) out += text(list ? 9 : 4, value);
    return out;
  };
  GraphBytes g{.nodes = {node("Mul", {"x", "w"}, {"t"}), node("Add", {"t", "b"}, {"y"}),
                         node("Gradient", {"w", "b"}, {"dw", "db"},
                              {text_attribute("xs", {"w", "b"}, true), text_attribute("y", {"y"}, false)},
                              "ai.onnx.preview.training")},
               .initializers = {tensor("w", 1, {}, raw_data(raw<float>({1}))),
                                tensor("b", 1, {}, raw_data(raw<float>({-0.0f})))},
               .inputs = {symbolic_input("x", {})},
               .outputs = {value_info("dw", {}), value_info("db", {})}};
  const Imported m = import_bytes(model(g, 17, opset("ai.onnx.preview.training", 1)));
  CHECK(output_type(m) == "f32[]");
  CHECK(m.graph.top.results.at(0) == m.graph.top.parameters.at(0));
  const graph::Value& one = m.graph[m.graph.top.results.at(1)];
  REQUIRE(one.data);
  float value = 0;
  std::memcpy(&value, one.data->bytes, sizeof value);
  CHECK(value == 1);
}

TEST_CASE("a gradient that depends on no unknown is computed where it is used") {
  const auto names = [](const std::string& name, const std::vector<std::string>& values, bool list) {
    std::string out = text(1, name) + number(20, list ? 8 : 3);
    for (const std::string& value : values) out += text(list ? 9 : 4, value);
    return out;
  };
  // The zeros for u and the ones for the sum are nodes of their own, not constants.
  GraphBytes g{
      .nodes = {node("Mul", {"x", "x"}, {"t"}), node("ReduceSum", {"t"}, {"y"}),
                node("Gradient", {"x", "u"}, {"dx", "du"},
                     {names("xs", {"x", "u"}, true), names("y", {"y"}, false)}, "ai.onnx.preview.training")},
      .inputs = {symbolic_input("x", {"n", "m"}), symbolic_input("u", {"n", "k"})},
      .outputs = {value_info("dx", {-1, -1}), value_info("du", {-1, -1})}};
  const Imported m = import_bytes(model(g, 17, opset("ai.onnx.preview.training", 1)));
  CHECK(m.problems.empty());
  CHECK(output_type(m) == "f32[n, m]");
  CHECK(output_type(m, 1) == "f32[n, k]");
  CHECK(graph::problems(m.graph, ops::shape_table()).empty());
}

TEST_CASE("a gradient is that of a function of the named values, whatever else has them") {
  const auto names = [](const std::string& name, const std::vector<std::string>& values, bool list) {
    std::string out = text(1, name) + number(20, list ? 8 : 3);
    for (const std::string& value : values) out += text(list ? 9 : 4, value);
    return out;
  };
  const auto gradient = [&](const std::vector<std::string>& xs, const std::vector<std::string>& zs,
                            std::vector<std::string> inputs) {
    std::vector<std::string> attributes = {names("xs", xs, true), names("y", {"y"}, false)};
    if (!zs.empty()) attributes.push_back(names("zs", zs, true));
    GraphBytes g{
        .nodes = {node("Relu", {"x"}, {"a"}), node("Relu", {"x"}, {"b"}), node("Identity", {"a"}, {"c"}),
                  node("Mul", {"a", "b"}, {"t"}), node("Mul", {"t", "c"}, {"y"}),
                  node("Gradient", std::move(inputs), {"d"}, std::move(attributes),
                       "ai.onnx.preview.training")},
        .inputs = {symbolic_input("x", {"n"}), symbolic_input("at", {"n"})},
        .outputs = {value_info("d", {-1}), value_info("y", {-1})}};
    Imported m = import_bytes(model(g, 17, opset("ai.onnx.preview.training", 1)));
    REQUIRE(m.problems.empty());
    CHECK(graph::problems(m.graph, ops::shape_table()).empty());
    loop::HostTensor x = loop::make_tensor(DType::kF32, {1}), at = x;
    loop::set_number(x, 0, 3);
    loop::set_number(at, 0, 5);
    const auto results = loop::interpret(ops::lower(m.graph), {x, at});
    CHECK(loop::get_number(results[1], 0) == 27);
    graph::eliminate_dead_code(m.graph);
    for (const graph::Node& each : m.graph.nodes) CHECK(each.kind != graph::OpKind::kStopGradient);
    return loop::get_number(results[0], 0);
  };
  CHECK(gradient({"a"}, {}, {"a"}) == 18);           // a * b * a, not a * a * a
  CHECK(gradient({"b"}, {}, {"b"}) == 9);            // a * b * a
  CHECK(gradient({"b"}, {}, {"at"}) == 9);           // linear in b
  CHECK(gradient({"a"}, {}, {"at"}) == 30);          // at 5: 2 * 5 * 3
  CHECK(gradient({"a"}, {"c"}, {"a", "c"}) == 9);    // c is held: b * c
  CHECK(gradient({"x"}, {}, {"x"}) == 27);           // 3 * x * x
  CHECK(gradient({"x"}, {"b"}, {"x", "at"}) == 30);  // x * 5 * x
  CHECK(gradient({"t"}, {"c"}, {"at", "x"}) == 3);
}

TEST_CASE("a range by steps of 0 is refused") {
  const auto integer = [](const std::string& name, int64_t value) {
    return tensor(name, 7, {}, raw_data(raw<int64_t>({value})));
  };
  GraphBytes g{.nodes = {node("Range", {"from", "to", "by"}, {"y"})},
               .initializers = {integer("from", 1), integer("to", 5), integer("by", 0)},
               .outputs = {value_info("y", {-1}, 7)}};
  const Imported m = import_bytes(model(g));
  REQUIRE(m.problems.size() == 1);
  CHECK(m.problems[0].message == "the step is 0");
}

TEST_CASE("an input of fewer dims than an operator needs is the model's fault") {
  GraphBytes g{.nodes = {node("STFT", {"x", "step", "window"}, {"y"})},
               .initializers = {tensor("step", 7, {}, raw_data(raw<int64_t>({4})))},
               .inputs = {value_info("x", {32}), value_info("window", {8})},
               .outputs = {value_info("y", {-1})}};
  const Imported m = import_bytes(model(g));
  REQUIRE(m.problems.size() == 1);
  CHECK(m.problems[0].code == "does-not-fit");
}

TEST_CASE("inputs can be bound as constants") {
  GraphBytes g{.nodes = {node("ReduceSum", {"x", "axes"}, {"y"})},
               .inputs = {symbolic_input("x", {"batch", "3"}), symbolic_input("axes", {"1"}, 7)},
               .outputs = {value_info("y", {-1, -1})}};
  const Imported told = import_bytes(model(g));  // the axis is known only at run time
  CHECK(told.problems.empty());
  CHECK(told.graph.input_names == std::vector<std::string>{"x", "axes"});
  const std::string encoded = ints("axes", {1});
  const Tensor axes = parse_tensor(std::as_bytes(std::span(encoded)));
  const Imported m = import_bytes(model(g), {.dims = {}, .constants = {{"axes", axes}}});
  CHECK(output_type(m) == "f32[batch, 1]");
  CHECK(m.graph.input_names == std::vector<std::string>{"x"});
}

TEST_CASE("the ten light models import without problems for any shape in range") {
  for (const char* name : {"bert_base", "convnext_tiny", "gpt2", "llama_cached", "mobilenet_v2",
                           "recommender", "resnet50", "tagger", "unet", "vit_b_16"}) {
    CAPTURE(name);
    const Model m = read_model(std::string(STRIDEC_SOURCE_DIR) + "/tests/models/" + name + ".onnx",
                               {.external_data = {}, .missing_weights_are_zero = true});
    CHECK(check_model(m).empty());
    const Imported imported = import_model(m);
    for (const Diagnostic& d : imported.problems) CHECK_MESSAGE(false, render(d));
    for (size_t i = 0; i < m.graph.outputs.size(); ++i)
      CHECK(imported.graph.output_names.at(i) == m.graph.outputs[i].name);
  }
}

TEST_CASE("what a fuzzer found is taken, or refused with a sentence") {
  for (const auto& entry : std::filesystem::directory_iterator(STRIDEC_SOURCE_DIR "/tests/fuzz/seeds/onnx")) {
    INFO(entry.path().filename().string());
    try {
      const Model model = read_model(entry.path().string());
      check_model(model);
      import_model(model);
    } catch (const Error& e) {
      CHECK(e.diagnostic.kind != ErrorKind::kInternal);
    }
  }
}

TEST_CASE("rows are well formed: known operators, no version twice") {
  const auto rows = operators();
  CHECK(rows.size() > 180);
  // Operators that ONNX never had or has removed.
  const std::set<std::string> outside{"Affine", "ScaledTanh", "SimplifiedLayerNormalization"};
  for (const auto& [name, versions, through, types, limits] : rows) {
    CAPTURE(name);
    CHECK(versions.empty() == through.empty());
    if (name == "Conv") CHECK(types.starts_with("T: f32 f16 f64"));
    if (name.find('.') != std::string::npos || outside.count(name)) continue;
    CHECK(find_schema(name, "", newest_version("")));
  }
}
