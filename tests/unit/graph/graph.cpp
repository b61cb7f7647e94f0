#include "compiler/graph/graph.h"

#include <doctest/doctest.h>

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/serialize.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"

using namespace stridec;
using namespace stridec::graph;

namespace {

// The IR itself needs only two ops: add requires equal shapes, reshape equal counts; slice is for
// elements_of.
Inferred like_first(Builder& b, const Node& node) {
  if (node.inputs.size() == 2) {
    const Shape x = b.shape(node.inputs[0]), y = b.shape(node.inputs[1]);
    for (size_t d = 0; d < x.size(); ++d)
      b.require(sym::eq(x[d], y[d]), "add: {0} and {1} differ", {x[d], y[d]});
  }
  return {{b.type(node.inputs[0])}, {}};
}
Inferred reshaped(Builder& b, const Node& node) {
  return {{{b.dtype(node.inputs[0]), node.attributes.exprs("shape")}}, {b.known(node.inputs[0])}};
}
Inferred sliced(Builder& b, const Node& node) {
  return {{{b.dtype(node.inputs[0]), node.attributes.exprs("extents")}}, {}};
}
Inferred none(Builder&, const Node&) { return {}; }
Inferred branches(Builder& b, const Node& node) { return {{b.type(node.regions[0].results[0])}, {}}; }

const ShapeTable& table() {
  static const ShapeTable t = [] {
    ShapeTable t{};
    for (OpKind kind : {OpKind::kAdd, OpKind::kNeg, OpKind::kExp}) t.fns[int(kind)] = like_first;
    t.fns[int(OpKind::kReshape)] = reshaped;
    t.fns[int(OpKind::kSlice)] = sliced;
    t.fns[int(OpKind::kSymbolOf)] = t.fns[int(OpKind::kUpdateState)] = none;
    t.fns[int(OpKind::kIf)] = branches;
    return t;
  }();
  return t;
}

const Type kRow{DType::kF32, {sym::var("n")}};

// A graph that uses all features.
Graph example() {
  Graph g;
  g.name = "a \"graph\"";
  Builder b(g, table());
  const ValueId x = b.input("x", {DType::kF32, {sym::var("n"), 4 * sym::var("h4")}});
  const ValueId y = b.input("y", {DType::kF32, {sym::var("n"), sym::var("m")}});
  const ValueId s = b.state("sum", {DType::kF32, {2}}, own(std::vector<uint8_t>(8)));
  g.facts.set_range(sym::var("n"), 1, 64);
  g.facts.set_divisible(sym::var("m"), 2);
  b.set_origin("node 1 'plus {x}'");
  const ValueId sum = b.add1(OpKind::kAdd, {x, y});
  b.set_name(sum, "plus");
  const ValueId flag = b.elements({sym::gt(sym::var("n"), 3)}, {}, DType::kBool);
  b.begin_region({{DType::kF32, {3}}});
  const ValueId inner = b.add1(OpKind::kNeg, {sum});
  std::vector<Region> regions{b.end_region({inner})};
  b.begin_region({});
  regions.push_back(b.end_region({sum}));
  const ValueId chosen =
      b.add_with_regions(OpKind::kIf, {}, {{"condition", (*b.known(flag))[0]}}, std::move(regions))[0];
  std::vector<uint8_t> big(4 * 40);
  big[5] = 7;
  const ValueId weight = b.constant("w", {DType::kF32, {40}}, own(big));
  b.add(OpKind::kUpdateState, {s, b.add1(OpKind::kExp, {s})},
        {{"list", std::vector<int64_t>{}},
         {"reals", std::vector<double>{0.5, 1e300, -2}},
         {"number", 2.0},
         {"text", std::string("a\n\"b\"")}});
  b.output("z", chosen);
  b.output("w", b.add1(OpKind::kExp, {weight}));
  b.output("h", b.elements({sym::var("h4") * 4, 1}, {2}));
  eliminate_dead_code(g);
  return g;
}

std::vector<uint8_t> bytes_of(const Graph& g) {
  std::vector<uint8_t> out;
  serialize(g, [&](const uint8_t* bytes, size_t size) { out.insert(out.end(), bytes, bytes + size); });
  return out;
}

std::string refusal(std::vector<uint8_t> file) {
  try {
    deserialize(own(std::move(file)), table());
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kMalformed);
    return error.diagnostic.message;
  }
  return "";
}

}  // namespace

TEST_CASE("equal nodes are one node, other nodes are not") {
  Graph g;
  Builder b(g, table());
  const ValueId x = b.input("x", kRow);
  CHECK(b.add1(OpKind::kAdd, {x, x}) == b.add1(OpKind::kAdd, {x, x}));
  CHECK(b.add1(OpKind::kNeg, {x}) != b.add1(OpKind::kExp, {x}));
  CHECK(b.add1(OpKind::kReshape, {x}, {{"shape", Shape{1, sym::var("n")}}}) !=
        b.add1(OpKind::kReshape, {x}, {{"shape", Shape{sym::var("n"), 1}}}));
  CHECK(b.add1(OpKind::kReshape, {x}, {{"shape", Shape{sym::var("n")}}}) == x);
  CHECK(b.scalar(DType::kF32, 2) == b.scalar(DType::kF32, 2));
  CHECK(b.scalar(DType::kF32, 2) != b.scalar(DType::kF32, 3));
  CHECK(b.scalar(DType::kF32, 0.0) != b.scalar(DType::kF32, -0.0));
  CHECK(b.integers({1, 2}) == b.integers({1, 2}));
  CHECK(b.integers({1, 2}) != b.integers({1, 2}, DType::kI32));
}

TEST_CASE("what a region shares is not seen outside it") {
  Graph g;
  Builder b(g, table());
  const ValueId x = b.input("x", kRow);
  const ValueId outer = b.add1(OpKind::kNeg, {x});
  b.begin_region({});
  CHECK(b.add1(OpKind::kNeg, {x}) == outer);
  const ValueId inner = b.add1(OpKind::kExp, {x});
  const Region region = b.end_region({inner});
  CHECK(region.nodes.size() == 1);
  CHECK(b.add1(OpKind::kExp, {x}) != inner);
}

TEST_CASE("conditions are proven, become guards once, or are refused with their sentence") {
  Graph g;
  Builder b(g, table());
  const ValueId x = b.input("x", kRow), y = b.input("y", {DType::kF32, {sym::var("m")}});
  b.set_origin("node 2 '{plus}'");
  b.add1(OpKind::kAdd, {x, x});
  CHECK(g.guards.empty());
  b.add1(OpKind::kAdd, {x, y});
  b.add1(OpKind::kAdd, {y, x});
  REQUIRE(g.guards.size() == 1);
  CHECK(sym::render(g.guards[0]) == "node 2 '{plus}': add: n and m differ");
  const ValueId two = b.constant("", {DType::kF32, {2}}, own(std::vector<uint8_t>(8)));
  const ValueId three = b.constant("", {DType::kF32, {3}}, own(std::vector<uint8_t>(12)));
  try {
    b.add1(OpKind::kAdd, {two, three});
    FAIL("not reached");
  } catch (const Error& error) {
    CHECK(error.diagnostic.kind == ErrorKind::kDoesNotFit);
    CHECK(error.diagnostic.message == "add: 2 and 3 differ");
    CHECK(error.diagnostic.where.node == "node 2 '{plus}'");
    CHECK(error.diagnostic.notes.size() == 2);
  }
}

TEST_CASE("what can be negative is not a size: its least value is not tried") {
  Graph g;
  Builder b(g, table());
  const sym::Expr large = int64_t{1} << 40, p = b.fresh_symbol("p", -large, large),
                  size = sym::floordiv(large * p, b.fresh_symbol("q", 1, 9));  // -2^80 at the least
  CHECK(!b.holds(sym::le(size, 5)));
  CHECK(b.simplify(size) == size);
}

TEST_CASE("conditions on symbols of the run are checked during it, and the check never dies") {
  Graph g;
  Builder b(g, table());
  const ValueId x = b.input("x", kRow), size = b.input("size", {DType::kI64, {1}});
  const sym::Expr k = b.elements_of(size, "k", 0, 10)[0];
  CHECK(b.elements_of(size, "k", 0, 10)[0] == k);
  CHECK(b.is_bound_in_run(k + sym::var("n")));
  b.require(sym::le(k, sym::var("n")), "{0} is more than {1}", {k, sym::var("n")});
  CHECK(b.holds(sym::le(k, sym::var("n"))));
  CHECK(g.guards.empty());
  b.output("y", b.add1(OpKind::kNeg, {x}));
  eliminate_dead_code(g);
  int symbols = 0;
  for (const Node& node : g.nodes) symbols += node.kind == OpKind::kSymbolOf;
  CHECK(symbols == 2);
  CHECK(problems(g, table()).empty());
}

TEST_CASE("a size that a row of operators makes long becomes a symbol, equal sizes one") {
  Graph g;
  Builder b(g, table());
  const auto row = [&](ValueId v, int steps) {
    for (int i = 0; i < steps; ++i) {
      const sym::Expr size = b.shape(v)[0];
      v = b.add1(OpKind::kReshape, {v}, {{"shape", Shape{size + sym::floordiv(size, 2)}}});
    }
    return v;
  };
  const ValueId x = b.input("x", kRow);
  CHECK(b.shape(row(x, 2))[0].size() > 8);
  CHECK(g.symbols.size() == 1);
  const ValueId once = row(x, 200), again = row(b.add1(OpKind::kNeg, {x}), 200);
  CHECK(b.shape(once)[0].size() < 50);
  CHECK(b.shape(once) == b.shape(again));
  CHECK(g.symbols.size() < 200);
  // A region's sizes have the same names, and another builder finds them.
  b.begin_region({});
  const ValueId inside = row(b.add1(OpKind::kExp, {x}), 200);
  CHECK(b.shape(inside) == b.shape(once));
  b.end_region({inside});
  const size_t symbols = g.symbols.size();
  Builder other(g, table());
  const ValueId more = other.add1(OpKind::kReshape, {x}, {{"shape", b.shape(row(x, 6))}});
  CHECK(other.shape(more) == b.shape(row(x, 6)));
  CHECK(g.symbols.size() == symbols);
  b.output("y", once);
  b.output("z", again);
  eliminate_dead_code(g);
  CHECK(problems(g, table()).empty());
}

TEST_CASE("a symbol that is mentioned keeps the node that binds it") {
  Graph g;
  Builder b(g, table());
  const ValueId size = b.input("size", {DType::kI64, {1}});
  const sym::Expr k = b.elements_of(size, "k", 0, 10)[0];
  const sym::Expr unused = b.elements_of(b.input("other", {DType::kI64, {1}}), "j", 0, 10)[0];
  CHECK(unused != k);
  b.output("y", b.elements({k + 1}, {1}));
  eliminate_dead_code(g);
  int symbols = 0;
  for (const Node& node : g.nodes) symbols += node.kind == OpKind::kSymbolOf;
  CHECK(symbols == 1);
  CHECK(g.symbols.size() == 1);
  CHECK(problems(g, table()).empty());
}

TEST_CASE("text parses back") {
  const Graph g = example();
  const std::string text = to_string(g);
  CHECK(text ==
        "graph \"a \\\"graph\\\"\"\n"
        "  symbol n 1..64 = input 0 dim 0\n"
        "  symbol h4 0.. = input 0 dim 1 by 4\n"
        "  symbol m 0.. multiple 4 = input 1 dim 1\n"
        "  guard $(4*h4 == m): \"node 1 'plus {{x}}': add: {0} and {1} differ\" $[4*h4, m]\n"
        "  input %0 \"x\" : f32[n, 4*h4]\n"
        "  input %1 \"y\" : f32[n, m]\n"
        "  state %2 \"sum\" : f32[2] = [0.0, 0.0]\n"
        "  %3 \"plus\" : f32[n, 4*h4] = add %0 %1 from \"node 1 'plus {x}'\"\n"
        "  %4 : f32[n, 4*h4] = if {condition=$(4 <= n)} from \"node 1 'plus {x}'\"\n"
        "    region (%5 : f32[3])\n"
        "      %6 : f32[n, 4*h4] = neg %3 from \"node 1 'plus {x}'\"\n"
        "      yield %6\n"
        "    region\n"
        "      yield %3\n"
        "  %7 \"w\" : f32[40] = constant 160 bytes from \"node 1 'plus {x}'\"\n"
        "  %8 : f32[2] = exp %2 from \"node 1 'plus {x}'\"\n"
        "  update_state %2 %8 {list=[], number=2.0, reals=#[0.5, 1e+300, -2.0], text=\"a\\n\\\"b\\\"\"} from "
        "\"node 1 'plus {x}'\"\n"
        "  %9 : f32[40] = exp %7 from \"node 1 'plus {x}'\"\n"
        "  %10 : i64[2] $[4*h4, 1] = elements {dtype=i64, elements=$[4*h4, 1], shape=$[2]} from \"node 1 "
        "'plus {x}'\"\n"
        "  output \"z\" %4\n"
        "  output \"w\" %9\n"
        "  output \"h\" %10\n");
  CHECK(to_string(parse(text)) == text);
  CHECK(problems(g, table()).empty());
}

TEST_CASE("text that is not a graph is refused with its line") {
  auto refused = [](const char* text) {
    try {
      parse(text);
    } catch (const Error& error) {
      return error.diagnostic.message;
    }
    return std::string();
  };
  CHECK(refused("") == "line 0: 'graph' expected, at ''");
  CHECK(refused("graph \"g\"\n  %0 : f32[2] = frob\n") == "line 2: 'frob' is not an op, at ''");
  CHECK(refused("graph \"g\"\n  output \"y\" %3\n") == "line 2: a value is used before it is defined, at ''");
  CHECK(refused("graph \"g\"\n  input %0 \"x\" : f33[2]\n") == "line 2: 'f33' is not a dtype, at '[2]'");
  CHECK(refused("graph \"g\"\n  input %0 \"x\" : f32[2\n").starts_with("line 2: "));
}

TEST_CASE("the verifier names what is wrong") {
  auto first = [](auto damage) {
    Graph g = example();
    damage(g);
    const auto found = problems(g, table());
    return found.empty() ? std::string() : found[0];
  };
  CHECK(first([](Graph&) {}) == "");
  CHECK(first([](Graph& g) { std::swap(g.top.nodes[0], g.top.nodes[1]); }).find("before it is made") !=
        std::string::npos);
  CHECK(first([](Graph& g) {
          g[g.top.results[0]].type.dtype = DType::kI32;
        }).find("follows from its inputs") != std::string::npos);
  CHECK(first([](Graph& g) { g.symbols.pop_back(); }).find("not a symbol of the graph") != std::string::npos);
  CHECK(first([](Graph& g) { g.output_names.pop_back(); }) == "results and output names differ in number");
  CHECK(first([](Graph& g) { g.top.results[0] = ValueId(1000); }).find("before it is made") !=
        std::string::npos);
}

TEST_CASE("regions inside each other without end are refused before anything recurses into them") {
  Graph g = example();
  for (int i = 0; i < 100000; ++i) {
    Node& node = g.nodes.emplace_back();
    node.kind = OpKind::kIf;
    node.regions = {
        {.parameters = {}, .nodes = {NodeId(static_cast<int64_t>(g.nodes.size()))}, .results = {}}};
  }
  g.nodes.back().regions.clear();
  g.top.nodes.push_back(NodeId(static_cast<int64_t>(g.nodes.size()) - 100000));
  CHECK(refusal(bytes_of(g)).find("nested more than 100 deep") != std::string::npos);
}

TEST_CASE("a serialized graph reads back") {
  const Graph g = example();
  const std::vector<uint8_t> file = bytes_of(g);
  CHECK(bytes_of(g) == file);
  const Graph back = deserialize(own(file), table());
  CHECK(to_string(back) == to_string(g));
  for (const Value& v : back.values)
    if (v.data && v.name == "w") CHECK(v.data->bytes[5] == 7);
  CHECK(bytes_of(back) == file);
}

TEST_CASE("damaged files are refused") {
  const std::vector<uint8_t> file = bytes_of(example());
  CHECK(refusal({}) == "not a serialized graph: it does not begin with SDGRAPH");
  std::vector<uint8_t> version = file;
  version[7] = 9;
  CHECK(refusal(version) == "not a serialized graph: version 9, this build reads 1");
  CHECK(refusal({file.begin(), file.begin() + 40}) == "not a serialized graph: it is truncated");
  CHECK(refusal({file.begin(), file.end() - 64}) == "not a serialized graph: a constant is outside the file");
  // Changing any single byte must give a rejection or a successful read, never a crash.
  for (size_t i = 16; i < file.size() - 256; ++i) {
    std::vector<uint8_t> damaged = file;
    damaged[i] ^= 0x15;
    try {
      deserialize(own(damaged), table());
    } catch (const Error& error) {
      CHECK(error.diagnostic.kind != ErrorKind::kInternal);
    }
  }
}
