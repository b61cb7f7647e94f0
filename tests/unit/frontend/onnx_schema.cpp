#include "compiler/frontend/onnx/schema.h"

#include <doctest/doctest.h>

#include "compiler/frontend/onnx/read.h"

using namespace stridec;
using namespace stridec::onnx;

TEST_CASE("schemas answer by version") {
  CHECK(find_schema("Softmax", "", 12)->since_version == 11);
  CHECK(find_schema("Softmax", "", 13)->since_version == 13);
  CHECK_FALSE(find_schema("Gelu", "", 19));
  CHECK(find_schema("Gelu", "", 20)->has_function);
  CHECK(find_schema("Upsample", "", 10)->deprecated);
  CHECK(find_schema("Clip", "", 13)->inputs.at(2).arity == Parameter::Arity::kOptional);
  CHECK(schema_default("Softmax", "", 12, "axis")->ints == std::vector<int64_t>{1});
  CHECK(schema_default("Softmax", "", 13, "axis")->ints == std::vector<int64_t>{-1});
  CHECK(schema_default("LeakyRelu", "", 16, "alpha")->floats.at(0) == 0.01f);
  CHECK_FALSE(schema_default("Conv", "", 11, "strides"));
  CHECK(newest_version("") == 28);
  CHECK(newest_version("com.microsoft") == 0);
}

TEST_CASE("the checker speaks about one node") {
  CHECK_FALSE(check_node({.op_type = "Relu", .version = 14, .inputs = {"x"}, .outputs = {"y"}}));
  const auto arity = check_node(
      {.name = "n", .op_type = "Relu", .version = 14, .inputs = {"x", "y"}, .outputs = {"y"}, .index = 3});
  REQUIRE(arity);
  CHECK(arity->code == "malformed-node");
  CHECK(arity->where.node == "node 3 'n'");
  CHECK(arity->message.find('\n') == std::string::npos);
  const auto unknown =
      check_node({.op_type = "Relu",
                  .version = 14,
                  .inputs = {"x"},
                  .outputs = {"y"},
                  .attributes = {{.name = "slope", .kind = AttributeKind::kInt, .ints = {1}}}});
  REQUIRE(unknown);
  CHECK(unknown->message.find("slope") != std::string::npos);
  CHECK(
      check_node({.op_type = "Cast", .version = 13, .inputs = {"x"}, .outputs = {"y"}}));  // 'to' is required
  CHECK_FALSE(check_node(
      {.op_type = "Anything", .domain = "com.acme", .version = 1, .inputs = {"x"}, .outputs = {"y"}}));
}

TEST_CASE("opsets and IR versions from the future are named") {
  Model m{.ir_version = 99, .opsets = {{"", 400}}};
  const auto problems = check_model(m);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].code == "unsupported-ir-version");
  CHECK(problems[1].message == "the model uses version 400 of ai.onnx; this build knows up to 28");
}

TEST_CASE("function operators expand") {
  const Type f32{.kind = Type::Kind::kTensor, .elem_type = 1};
  const auto gelu =
      expand_function({.op_type = "Gelu", .version = 20, .inputs = {"x"}, .outputs = {"y"}}, {f32}, "g/");
  REQUIRE(gelu);
  bool gives_output = false, erf = false;
  for (const Node& n : *gelu) {
    for (const auto& o : n.outputs) gives_output |= o == "y";
    erf |= n.op_type == "Erf";
    CHECK(n.version > 0);
    for (const auto& o : n.outputs) CHECK((o == "y" || o.starts_with("g/")));
  }
  CHECK(gives_output);
  CHECK(erf);
  const auto celu =
      expand_function({.op_type = "Celu", .version = 12, .inputs = {"x"}, .outputs = {"y"}}, {f32}, "c/");
  REQUIRE(celu);  // alpha is not given: the default is used
  CHECK_FALSE(
      expand_function({.op_type = "Conv", .version = 11, .inputs = {"x", "w"}, .outputs = {"y"}}, {}, "c/"));
}
