// The texts inside a program: size expressions, guards, tree specs, JSON.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/pt2/expression.h"
#include "compiler/frontend/pt2/guards.h"
#include "compiler/frontend/pt2/program.h"
#include "compiler/frontend/pt2/tree_spec.h"
#include "compiler/sym/text.h"

namespace stridec::pt2 {
namespace {

std::string parsed(const std::string& text) {
  const auto e = parse_expression(text, [](const std::string& name) -> std::optional<sym::Expr> {
    if (name == "s9") return std::nullopt;
    return sym::var(name);
  });
  return e ? sym::to_string(*e) : "none";
}

TEST_CASE("expression: sympy's srepr") {
  const std::string s = "Symbol('s0', positive=True, integer=True)";
  CHECK(parsed(s) == "s0");
  CHECK(parsed("Symbol('u0')") == "u0");
  CHECK(parsed("Integer(-3)") == "-3");
  CHECK(parsed("Add(Mul(Integer(2), " + s + "), Integer(1))") ==
        parsed("Add(Integer(1), " + s + ", " + s + ")"));
  CHECK(parsed("FloorDiv(" + s + ", Integer(2))") == sym::to_string(sym::floordiv(sym::var("s0"), 2)));
  CHECK(parsed("Pow(" + s + ", Integer(2))") == sym::to_string(sym::var("s0") * sym::var("s0")));
  CHECK(parsed("Mul(Rational(1, 2), " + s + ")") == sym::to_string(sym::floordiv(sym::var("s0"), 2)));
  CHECK(parsed("Add(Rational(1, 2), Rational(1, 2))") == "1");
  CHECK(parsed("ModularIndexing(" + s + ", Integer(2), Integer(3))") ==
        sym::to_string(sym::mod(sym::floordiv(sym::var("s0"), 2), 3)));
  CHECK(parsed("Max(Integer(1), " + s + ")") == sym::to_string(sym::max(1, sym::var("s0"))));
  CHECK(parsed("GreaterThan(" + s + ", Integer(2))") == sym::to_string(sym::ge(sym::var("s0"), 2)));
  CHECK(parsed("Where(Equality(" + s + ", Integer(1)), Integer(2), Integer(3))") ==
        sym::to_string(sym::select(sym::eq(sym::var("s0"), 1), 2, 3)));
}

TEST_CASE("expression: as Python writes it, in files before PyTorch 2.6") {
  const sym::Expr s = sym::var("s0");
  CHECK(parsed("s0") == "s0");
  CHECK(parsed("2*s0 + 1") == sym::to_string(s * 2 + 1));
  CHECK(parsed("-s0 + 3") == sym::to_string(-s + 3));
  CHECK(parsed("s0 - s1 - 1") == sym::to_string(s - sym::var("s1") - 1));
  CHECK(parsed("s0**2") == sym::to_string(s * s));
  CHECK(parsed("((s0 + 1)//2)") == sym::to_string(sym::floordiv(s + 1, 2)));
  CHECK(parsed("s0/2 + s0/2") == sym::to_string(sym::floordiv(s * 2, 2)));
  CHECK(parsed("Mod(s0, 3)") == parsed("s0 % 3"));
  CHECK(parsed("Max(1, 2*s0)") == sym::to_string(sym::max(1, s * 2)));
  CHECK(parsed("s0 >= 2") == sym::to_string(sym::ge(s, 2)));
  for (const char* text : {"s0 +", "(s0", "s0 s1", "s0)", "* s0", "s0 / s1"})
    CHECK_MESSAGE(parsed(text) == "none", text);
  CHECK(parsed(std::string(100'000, '(')) == "none");
  CHECK(parsed(std::string(10'000, '-') + "s0") == "none");
}

TEST_CASE("expression: text that is refused") {
  for (const char* text :
       {"", "Symbol('s9')", "Symbol(s0)", "Symbol('s0'", "Integer(", "Integer(1))", "Integer(1) Integer(2)",
        "Float('2.5', precision=53)", "__import__('os').system('x')", "Pow(Integer(2), Integer(1000))",
        "Integer(99999999999999999999)", "Add(,)", "FloorDiv(Integer(1))", "Rational(1, 0)"})
    CHECK_MESSAGE(parsed(text) == "none", text);
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "Add(Integer(1), ";
  CHECK(parsed(deep) == "none");
  std::string wide = "Symbol('s0')";
  for (int i = 0; i < 8; ++i) wide = "Mul(Add(" + wide + ", Symbol('s1')), Add(" + wide + ", Symbol('s2')))";
  parsed(wide);  // terminates
}

TEST_CASE("guard: Python's conditions on inputs") {
  const GuardLookup lookup = [](const std::vector<std::string>& path,
                                std::optional<int64_t> dim) -> std::optional<sym::Expr> {
    std::string name;
    for (const std::string& p : path) name += p;
    if (name == "unknown") return std::nullopt;
    return sym::var(dim ? name + std::to_string(*dim) : name);
  };
  const auto guard = [&](const std::string& text) {
    const auto e = parse_guard(text, lookup);
    return e ? sym::to_string(*e) : "none";
  };
  const sym::Expr x0 = sym::var("x0"), n = sym::var("n");
  CHECK(guard("(L['x'].size()[0] % 2) == 0") == sym::to_string(sym::eq(sym::mod(x0, 2), 0)));
  CHECK(guard("L['n'] >= 0 and L['n'] <= 8") ==
        sym::to_string(sym::logical_and(sym::ge(n, 0), sym::le(n, 8))));
  CHECK(guard("1 < L['n'] < 8") == sym::to_string(sym::logical_and(sym::lt(1, n), sym::lt(n, 8))));
  CHECK(guard("torch.sym_max(1, L['n']) != 8") == sym::to_string(sym::ne(sym::max(1, n), 8)));
  CHECK(guard("L['d']['u'][0].size()[1] == 2*(-1 + L['n'] // 3)") ==
        sym::to_string(sym::eq(sym::var("du01"), (sym::floordiv(n, 3) - 1) * 2)));
  CHECK(guard("not L['n'] == 3") == sym::to_string(sym::ne(n, 3)));
  for (const char* text : {"", "L", "L[", "L['n", "L['n'] ==", "L['unknown'] == 1", "L['n'] ** 2 == 4",
                           "L['x'].stride()[0] == 1", "os.system('x')", "L['n'] == 1)"})
    CHECK_MESSAGE(guard(text) == "none", text);
  CHECK(guard(std::string(5000, '(')) == "none");
  CHECK(is_layout_guard("(1 + L['x'].size()[3]) != 1"));
  CHECK_FALSE(is_layout_guard("L['n'] != 1 and L['n'] != 1"));
  CHECK_FALSE(is_layout_guard("L['n'] != 8"));
}

TEST_CASE("tree spec: names of arguments and results") {
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  const auto node = [](const std::string& type, const std::string& context, const std::string& children) {
    return R"({"type": ")" + type + R"(", "context": ")" + context + R"(", "children_spec": [)" + children +
           "]}";
  };
  const std::string dict = node("builtins.dict", R"([\"u\", \"w\"])",
                                leaf + ", " + node("builtins.list", "null", leaf + ", " + leaf));
  const std::string args = node("builtins.tuple", "null", leaf + ", " + dict);
  const std::string kwargs = node("builtins.dict", R"([\"scale\"])", leaf);
  const auto paths =
      argument_paths("[1, " + node("builtins.tuple", "null", args + ", " + kwargs) + "]", {"x", "d"}, {});
  std::string all;
  for (const Path& path : paths) all += joined(path) + " ";
  CHECK(all == "x d.u d.w.0 d.w.1 scale ");
  const auto named = leaf_paths("[1, " + node("collections.namedtuple", "my.P", leaf + ", " + leaf) + "]",
                                {{"my.P", {"a", "b"}}});
  CHECK(joined(named.at(1)) == "b");
  const auto cache = leaf_paths(
      "[1, " + node("a.Cache", R"([[\"key\", \"value\"], [null, null]])", leaf + ", " + leaf) + "]", {});
  CHECK(joined(cache.at(0)) == "key");
  const auto sorted =
      leaf_paths("[1, " + node("torch.return_types.sort", "null", leaf + ", " + leaf) + "]", {});
  CHECK(joined(sorted.at(1)) == "indices");
  const auto factors = leaf_paths(
      "[1, " + node("torch.return_types.linalg_svd_out", "null", leaf + ", " + leaf + ", " + leaf) + "]", {});
  CHECK(joined(factors.at(0)) == "U");
  CHECK(joined(factors.at(2)) == "Vh");
  const auto unknown = leaf_paths("[1, " + node("torch.return_types.of_later", "null", leaf) + "]", {});
  CHECK(joined(unknown.at(0)) == "0");
  for (const char* text : {"", "[]", "[1, 2]", R"([1, {"type": "t"}])", R"([1, {"children_spec": 3}])"})
    CHECK_THROWS_AS(leaf_paths(text, {}), Error);
  std::string deep = leaf;
  for (int i = 0; i < 100; ++i) deep = node("builtins.tuple", "null", deep);
  CHECK_THROWS_AS(leaf_paths("[1, " + deep + "]", {}), Error);
}

TEST_CASE("program: forms of arguments, and JSON that is not a program") {
  const auto program = [](const std::string& nodes) {
    return R"({"schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0", "range_constraints": {},
      "graph_module": {"signature": {"input_specs": [], "output_specs": []}, "graph": {"inputs": [], "outputs": [],
      "tensor_values": {}, "sym_int_values": {}, "nodes": [)" +
           nodes + "]}}}";
  };
  const auto argument = [&](const std::string& json) {
    const Program p = decode_program(
        program(R"({"target": "t", "inputs": [{"name": "a", "arg": )" + json + R"(}], "outputs": []})"));
    return p.graph.nodes.at(0).inputs.at(0).value;
  };
  using Kind = Argument::Kind;
  CHECK(argument(R"({"as_none": true})").kind == Kind::kNone);
  CHECK(argument(R"({"as_int": 9223372036854775807})").integer == INT64_MAX);
  CHECK(argument(R"({"as_float": "-Infinity"})").number < -1e300);
  CHECK(argument(R"({"as_float": 2})").number == 2);
  CHECK(argument(R"({"as_sym_ints": [{"as_int": 1}, {"as_name": "s"}]})").items.at(1).text == "s");
  CHECK(argument(R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})")
            .items.size() == 2);
  CHECK(argument(R"({"as_complex": {"real": 1, "imag": 2}})").imaginary == 2);
  CHECK(argument(R"({"as_new_thing": 1})").kind == Kind::kOther);
  for (const char* bad : {"1", "{}", R"({"as_int": "x"})", R"({"as_int": 1, "as_float": 2})",
                          R"({"as_tensor": {}})", R"({"as_float": "nan"})", R"({"as_graph": {"name": "g"}})"})
    CHECK_THROWS_AS(argument(bad), Error);
  for (const char* bad : {"", "{", "[]", "{}", R"({"schema_version": {"major": 7, "minor": 0}})"})
    CHECK_THROWS_AS(decode_program(bad), Error);
  CHECK_THROWS_AS(decode_program(std::string(1'000'000, '[')), Error);
}

}  // namespace
}  // namespace stridec::pt2
