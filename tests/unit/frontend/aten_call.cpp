// Schemas, type promotion, and functionalisation: writes through views are seen by other views.
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_parts.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/graph/text.h"
#include "compiler/ops/op_table.h"

namespace stridec::aten {
namespace {

struct Fixture {
  graph::Graph graph;
  graph::Builder b{graph, ops::shape_table()};

  // Integers are folded, so that a value can be read off.
  Value numbers(const std::vector<int64_t>& values, Shape shape) {
    return ops::Term(b, b.elements({values.begin(), values.end()}, std::move(shape)));
  }
  Results run(const std::string& name, const std::string& overload, std::vector<NamedValue> args) {
    const Schema* schema = find_schema("aten", name, overload);
    REQUIRE(schema);
    return call(b, *schema, std::move(args));
  }
  Value one(const std::string& name, const std::string& overload, std::vector<NamedValue> args) {
    return run(name, overload, std::move(args)).at(0);
  }
  std::string text(const Value& v) {
    const auto known = b.known(read(b, v.tensor));
    if (!known) return "unknown";
    std::string out;
    for (sym::Expr e : *known) out += std::to_string(e.value()) + " ";
    return out;
  }
  static Value i(int64_t n) { return Value::integer_of(n); }
  static Value list(std::initializer_list<int64_t> n) {
    std::vector<Value> items;
    for (int64_t v : n) items.push_back(i(v));
    return Value::list(std::move(items));
  }
};

TEST_CASE("schema: arguments, defaults, aliasing") {
  const auto add =
      parse_schema("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
  REQUIRE(add);
  CHECK(add->full_name() == "add_.Tensor");
  CHECK(add->arguments.at(0).written);
  CHECK(add->arguments.at(0).type == "Tensor");
  CHECK(add->arguments.at(2).keyword);
  CHECK(*add->arguments.at(2).default_text == "1");
  const auto conv = parse_schema(
      "aten::conv2d(Tensor input, SymInt[2] stride=[1, 1], str mode=\"a,b\") -> (Tensor, int[])");
  REQUIRE(conv);
  CHECK(conv->arguments.at(1).type == "SymInt[2]");
  CHECK(*conv->arguments.at(1).default_text == "[1, 1]");
  CHECK(conv->arguments.size() == 3);
  CHECK(conv->returns.size() == 2);
  for (const char* bad : {"", "aten::x", "x(Tensor) -> Tensor", "aten::x(Tensor) -> Tensor"})
    CHECK_FALSE(parse_schema(bad));
  CHECK(find_schema("aten", "add", "Tensor"));
  CHECK(find_schema("aten", "relu", "default"));
  CHECK_FALSE(find_schema("aten", "relu", "Tensor"));
  CHECK(overloads("aten", "add").size() >= 3);
}

TEST_CASE_FIXTURE(Fixture, "a dtype that is not given is the schema's") {
  CHECK(text(one("triu_indices", "default", {{"row", i(2)}, {"col", i(2)}})) == "0 0 1 0 1 1 ");
}

TEST_CASE_FIXTURE(Fixture, "promotion: PyTorch's categories") {
  const auto of = [&](DType t, Shape shape) { return Value(ops::filled(b, shape, t, 1)); };
  CHECK(result_type(b, {of(DType::kI64, {2}), Value::number_of(1)}) == DType::kF32);
  CHECK(result_type(b, {of(DType::kBF16, {2}), Value::number_of(1)}) == DType::kBF16);
  CHECK(result_type(b, {of(DType::kBF16, {2}), of(DType::kF32, {})}) == DType::kBF16);
  CHECK(result_type(b, {of(DType::kI32, {2}), of(DType::kI64, {})}) == DType::kI32);
  CHECK(result_type(b, {of(DType::kI32, {2}), of(DType::kF32, {})}) == DType::kF32);
  CHECK(result_type(b, {of(DType::kBool, {2}), i(3)}) == DType::kI64);
  CHECK(result_type(b, {of(DType::kI8, {2}), i(300)}) == DType::kI8);
  CHECK(promote(DType::kU8, DType::kI8) == DType::kI16);
  CHECK(promote(DType::kF16, DType::kBF16) == DType::kF32);
}

TEST_CASE_FIXTURE(Fixture,
                  "functionalisation: a write through a view is seen by the base and by other views") {
  const Value x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  const Value row = one("select", "int", {{"self", x}, {"dim", i(0)}, {"index", i(1)}});
  const Value flat = one("view", "default", {{"self", x}, {"size", list({-1})}});
  const Value turned = one("t", "default", {{"self", x}});
  one("fill_", "Scalar", {{"self", row}, {"value", i(9)}});
  CHECK(text(x) == "1 2 3 9 9 9 ");
  CHECK(text(flat) == "1 2 3 9 9 9 ");
  CHECK(text(turned) == "1 9 2 9 3 9 ");
  one("add_", "Tensor", {{"self", turned}, {"other", i(1)}});
  CHECK(text(x) == "2 3 4 10 10 10 ");
  CHECK(text(row) == "10 10 10 ");
}

TEST_CASE_FIXTURE(Fixture, "functionalisation: a chain of views, and copies that do not alias") {
  const Value x = numbers({0, 1, 2, 3, 4, 5, 6, 7}, {2, 4});
  const Value copy = one("clone", "default", {{"self", x}});
  const Value same = one("to", "dtype", {{"self", x}, {"dtype", Value::of_dtype(DType::kI64)}});
  const Value part =
      one("slice", "Tensor",
          {{"self", one("t", "default", {{"self", x}})}, {"dim", i(0)}, {"start", i(1)}, {"end", i(-1)}});
  one("zero_", "default", {{"self", part}});
  CHECK(text(x) == "0 0 0 3 4 0 0 7 ");
  CHECK(text(same) == "0 0 0 3 4 0 0 7 ");
  CHECK(text(copy) == "0 1 2 3 4 5 6 7 ");
}

TEST_CASE_FIXTURE(Fixture, "functionalisation: reshape of a transposed tensor is a copy") {
  Value x = numbers({1, 2, 3, 4}, {2, 2});
  x.tensor.strides = {2, 1};
  Value turned = one("t", "default", {{"self", x}});
  turned.tensor.strides = {1, 2};
  const Value flat = one("reshape", "default", {{"self", turned}, {"shape", list({4})}});
  const Value alias = one("reshape", "default", {{"self", x}, {"shape", list({4})}});
  one("fill_", "Scalar", {{"self", x}, {"value", i(0)}});
  CHECK(text(flat) == "1 3 2 4 ");
  CHECK(text(alias) == "0 0 0 0 ");
}

TEST_CASE_FIXTURE(Fixture, "call: scalars, empty tensors and no differences") {
  const Value scalar = numbers({5}, {}), empty = numbers({}, {0}), x = numbers({1, 4, 9}, {3});
  // A scalar has one row, as in PyTorch.
  CHECK_NOTHROW(one("index_add", "default",
                    {{"self", scalar}, {"dim", i(0)}, {"index", numbers({0}, {1})}, {"source", scalar}}));
  CHECK(text(one("roll", "default", {{"self", empty}, {"shifts", list({1})}, {"dims", list({0})}})) == "");
  CHECK(text(one("roll", "default", {{"self", x}, {"shifts", list({1})}, {"dims", list({0})}})) == "9 1 4 ");
  CHECK(text(one("diff", "default", {{"self", x}, {"n", i(0)}, {"append", x}})) == "1 4 9 ");
  CHECK(text(one("diff", "default", {{"self", x}})) == "3 5 ");
  CHECK(text(one("diff", "default", {{"self", x}, {"n", i(7)}})) == "");
}

// A value of a type, of which there may be no default; complex for tensors.
std::optional<Value> value_of_type(Builder& b, const std::string& type) {
  Tensor tensor = fresh(ops::filled(b, {2, 2, 2}, DType::kF32, 1));
  tensor.complex = true;
  if (type == "Tensor") return tensor;
  if (type == "Tensor[]") return Value::list({tensor, tensor});
  if (type == "Scalar" || type == "float") return Value::number_of(1);
  if (type == "int" || type == "SymInt" || type == "bool") return Value::integer_of(1);
  if (type.starts_with("int[") || type.starts_with("SymInt[")) return Value::list({Value::integer_of(1)});
  return std::nullopt;
}

TEST_CASE_FIXTURE(Fixture, "call: complex numbers go to operators with a rule, and no others") {
  int refused = 0;
  for (const auto rows : {pointwise_rows(), activation_rows(), arithmetic_rows(), reduction_rows(),
                          order_rows(), loss_rows(), pooling_rows(), normalization_rows(), special_rows(),
                          statistics_rows(), indexing_rows(), random_rows(), resize_rows()})
    for (const Row& row : rows)
      for (const Schema* schema : overloads("aten", row.name.substr(0, row.name.find('.')))) {
        const Row* found = find_row(*schema);
        if (!found || found->numbers == Numbers::kComplex || has_complex_rule(*schema)) continue;
        std::vector<NamedValue> arguments;
        bool tensors = false, known = true;
        for (const SchemaArgument& a : schema->arguments) {
          if (a.default_text) continue;
          const std::optional<Value> value = value_of_type(b, a.type);
          known = known && value;
          tensors = tensors || a.type.starts_with("Tensor");
          if (value) arguments.push_back({a.name, *value});
        }
        if (!tensors || !known) continue;
        INFO(schema->full_name());
        CHECK_THROWS_WITH_AS(call(b, *schema, arguments), doctest::Contains("of complex numbers"), Error);
        ++refused;
      }
  CHECK(refused > 100);
  CHECK_FALSE(has_complex_rule(*find_schema("aten", "isin", "Tensor_Tensor")));
  CHECK(has_complex_rule(*find_schema("aten", "float_power_", "Scalar")));
}

TEST_CASE_FIXTURE(Fixture, "call: out=, defaults, and what is refused") {
  const Value x = numbers({1, 2}, {2}), out = numbers({0, 0}, {2});
  run("add", "out", {{"self", x}, {"other", x}, {"out", out}});
  CHECK(text(out) == "2 4 ");
  CHECK_THROWS_AS(one("add", "Tensor", {{"self", x}}), Error);
  CHECK_THROWS_AS(one("add", "Tensor", {{"self", x}, {"other", x}, {"beta", i(1)}}), Error);
  CHECK_THROWS_AS(one("select", "int", {{"self", x}, {"dim", i(3)}, {"index", i(0)}}), Error);
  CHECK_THROWS_AS(one("linalg_ldl_factor", "default", {{"self", x}}), Error);
}

TEST_CASE_FIXTURE(Fixture, "call: out= of another shape than the result") {
  const auto refusal = [&](const Value& x, const Value& out) -> std::string {
    try {
      run("add", "out", {{"self", x}, {"other", x}, {"out", out}});
    } catch (const Error& error) {
      CHECK(error.diagnostic.kind == ErrorKind::kUnsupported);
      return error.diagnostic.message;
    }
    return "";
  };
  const Value x = numbers({1, 2}, {2});
  const char* other = "add.out writes a result of shape [2] to out= of shape ";
  CHECK(refusal(x, numbers({0, 0, 0}, {3})) == std::string(other) + "[3]");
  CHECK(refusal(x, numbers({0}, {1})) == std::string(other) + "[1]");
  CHECK(refusal(x, numbers({0, 0, 0, 0}, {2, 2})) == std::string(other) + "[2, 2]");
  const Value part = one("slice", "Tensor", {{"self", numbers({0, 0, 0}, {3})}, {"end", i(0)}});
  CHECK(refusal(x, part) == std::string(other) + "[0]");
  // A tensor without elements becomes the result, and an in-place operator broadcasts.
  const Value none = numbers({}, {0}), two = numbers({0, 0, 0, 0}, {2, 2});
  CHECK(refusal(x, none).empty());
  CHECK(text(none) == "2 4 ");
  run("add_", "Tensor", {{"self", two}, {"other", x}});
  CHECK(text(two) == "1 2 1 2 ");
  // Symbols: known to differ, and decided by the run.
  const sym::Expr n = sym::var("n");
  const auto input = [&](const char* name, sym::Expr size) {
    return Value(ops::Term(b, b.input(name, {DType::kF32, {size}})));
  };
  CHECK(refusal(input("a", n), input("b", n + 1)) ==
        "add.out writes a result of shape [n] to out= of shape [n + 1]");
  const size_t guards = graph.guards.size();
  CHECK(refusal(input("c", n), input("d", sym::var("m"))).empty());
  CHECK(graph.guards.size() == guards + 1);
}

}  // namespace
}  // namespace stridec::aten
