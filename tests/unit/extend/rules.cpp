// Rules of users: parsing, checking, matching and rewriting.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_rules.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/rewrite.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/op_table.h"

using namespace stridec;
using extend::RuleFile;

namespace {

RuleFile rules_of(const std::string& name) { return extend::read_rules(cat(STRIDEC_SOURCE_DIR, "/", name)); }

RuleFile parsed(const std::string& text) { return extend::parse_rules(text, "test.rules"); }

graph::Graph graph_of(const std::string& lines) {
  graph::Graph graph = graph::parse(cat("graph \"g\"\n", lines));
  REQUIRE(graph::problems(graph, ops::shape_table()).empty());
  return graph;
}

// rules_at() keeps pointers into its argument.
extend::Rewritten rewritten(graph::Graph& graph, const std::string& text) {
  const std::vector<RuleFile> files = {parsed(text)};
  extend::Rewritten made = extend::rewrite(graph, extend::rules_at(files, "import"), {.explains = true});
  graph::verify(graph, ops::shape_table(), "rules");
  return made;
}

int count(const graph::Graph& graph, graph::OpKind kind) {
  return static_cast<int>(std::ranges::count(graph.nodes, kind, &graph::Node::kind));
}

const std::string kInputs =
    "  symbol n 0.. = input 0 dim 0\n"
    "  input %0 \"x\" : f32[n, 16]\n";

}  // namespace

TEST_CASE("rules: those that do not hold are refused with a counterexample") {
  const RuleFile file = rules_of("tests/extend/wrong.rules");
  for (const extend::Rule& rule : file.rules) {
    CAPTURE(rule.name);
    const extend::Verdict verdict = extend::check_rule(file, rule);
    CHECK(!verdict.problem.empty());
    CHECK(!verdict.notes.empty());
    MESSAGE(rule.name << ": " << verdict.problem << "  " << join(verdict.notes, "; "));
  }
}

TEST_CASE("rules: those that hold are accepted, with every seed") {
  for (const char* name : {"tests/extend/right.rules", "samples/extend/examples.rules"}) {
    const RuleFile file = rules_of(name);
    for (const extend::Rule& rule : file.rules)
      for (uint64_t seed = 0; seed < 3; ++seed) {
        CAPTURE(rule.name);
        const extend::Verdict verdict = extend::check_rule(file, rule, {.instances = 64, .seed = seed});
        CHECK_MESSAGE(verdict.problem.empty(), verdict.problem << "  " << join(verdict.notes, "; "));
        if (verdict.problem.empty())
          CHECK(verdict.fires == (rule.name != "cast_back" && rule.name != "transpose_twice"));
      }
    CHECK(extend::find_loop({file}) == "");
  }
}

TEST_CASE("rules: both orders of commutative operands, constants by value, results by type") {
  graph::Graph graph = graph_of(kInputs +
                                "  %1 : f32[] = constant [0.5]\n"
                                "  %2 : f32[n, 16] = mul %1 %0\n"
                                "  %3 : f32[n, 16] = add %2 %0\n"
                                "  output \"y\" %3\n");
  const std::string rule =
      "rule one_and_a_half:\n"
      "  let x: float[...]\n"
      "  match x + x * 0.5\n"
      "  yield x * 1.5\n"
      "  check close 1e-6\n";
  const auto made = rewritten(graph, rule);
  CHECK(made.effects[0].fired == 1);
  CHECK(count(graph, graph::OpKind::kAdd) == 0);
  CHECK(count(graph, graph::OpKind::kMul) == 1);
}

TEST_CASE("rules: a value with another reader is not dropped, unless the rule says shared") {
  const std::string text = kInputs +
                           "  %1 : f32[n, 16] = neg %0\n"
                           "  %2 : f32[n, 16] = abs %1\n"
                           "  output \"y\" %2\n"
                           "  output \"z\" %1\n";
  const std::string body = ":\n  let x: number[...]\n  match abs(-x)\n  yield abs(x)\n  check exact\n";
  graph::Graph graph = graph_of(text);
  const auto alone = rewritten(graph, "rule a" + body);
  CHECK(alone.effects[0].fired == 0);
  REQUIRE(alone.effects[0].near_misses.size() == 1);
  CHECK(alone.effects[0].near_misses[0].reason == "the result of neg has another reader");
  graph = graph_of(text);
  CHECK(rewritten(graph, "rule a shared" + body).effects[0].fired == 1);
}

TEST_CASE("rules: conditions are proved for all sizes, or the rule says why it stays out") {
  const std::string rule =
      "rule a:\n"
      "  let x: float[m, k]\n"
      "  match abs(-x)\n"
      "  where m >= 4\n"
      "  yield abs(x)\n"
      "  check exact\n";
  const auto graph_with = [](const std::string& range) {
    return graph_of("  symbol n " + range +
                    " = input 0 dim 0\n"
                    "  input %0 \"x\" : f32[n, 16]\n"
                    "  %1 : f32[n, 16] = neg %0 from \"node 0\"\n"
                    "  %2 : f32[n, 16] = abs %1 from \"node 1\"\n"
                    "  output \"y\" %2\n");
  };
  graph::Graph large = graph_with("4.."), any = graph_with("0..");
  const auto fires = rewritten(large, rule);
  CHECK(fires.effects[0].fired == 1);
  CHECK(fires.effects[0].nodes == std::vector<std::string>{"node 0", "node 1"});
  CHECK(fires.by.at("node 0") == "a");
  const auto stays = rewritten(any, rule);
  CHECK(stays.effects[0].fired == 0);
  REQUIRE(stays.effects[0].near_misses.size() == 1);
  CHECK(stays.effects[0].near_misses[0].node == "node 1");
  CHECK(stays.effects[0].near_misses[0].reason == "where (m >= 4): not proved: 4 <= n");
}

TEST_CASE("rules: a requirement becomes a guard") {
  graph::Graph graph = graph_of(kInputs +
                                "  %1 : f32[n, 16] = neg %0\n"
                                "  %2 : f32[n, 16] = abs %1\n"
                                "  output \"y\" %2\n");
  const auto made = rewritten(graph,
                              "rule a:\n"
                              "  let x: float[m, k]\n"
                              "  match abs(-x)\n"
                              "  require m >= 4 \"four rows are needed\"\n"
                              "  yield abs(x)\n"
                              "  check exact\n");
  CHECK(made.effects[0].fired == 1);
  REQUIRE(graph.guards.size() == 1);
  CHECK(graph.guards[0].sentence == "rule a: four rows are needed");
}

TEST_CASE("rules: composites match what they are made of") {
  const std::string rule =
      "rule a:\n"
      "  let x: float[..., n], c: const float[]\n"
      "  match softmax(x + c, d)\n"
      "  where all(d == [1]), finite(c)\n"
      "  yield softmax(x, d)\n"
      "  check close 1e-5\n";
  for (const char* dtype : {"f32", "f16"}) {
    CAPTURE(dtype);
    graph::Graph graph;
    graph::Builder b(graph, ops::shape_table());
    const sym::Expr n = sym::var("n");
    const auto type = *parse_dtype(dtype);
    const auto x = b.input("x", {type, {n, 8}});
    const auto c = b.scalar(type, 3);
    extend::Bindings none;
    none.values["x"] = b.add1(graph::OpKind::kAdd, {x, c});
    const RuleFile file = parsed("rule s:\n  let x: float[...]\n  match softmax(x, -1)\n  yield x\n");
    b.output("y", extend::Evaluator(b, none).side(file.rules[0].match)[0]);
    CHECK(rewritten(graph, rule).effects[0].fired == 1);
    CHECK(count(graph, graph::OpKind::kAdd) == 0);
  }
}

TEST_CASE("rules: several results are replaced together") {
  graph::Graph graph = graph_of(kInputs +
                                "  %1 : f32[n, 16] = exp %0\n"
                                "  %2 : f32[n, 16] = neg %0\n"
                                "  %3 : f32[n, 16] = exp %2\n"
                                "  %4 : f32[n, 16] = mul %1 %3\n"
                                "  output \"y\" %4\n");
  const RuleFile file = rules_of("samples/extend/examples.rules");
  const std::vector<RuleFile> files = {file};
  const auto made = extend::rewrite(graph, extend::rules_at(files, "import"), {.explains = true});
  graph::verify(graph, ops::shape_table(), "rules");
  CHECK(made.trace == std::vector<std::string>{"exponentials_of_both_signs"});
  CHECK(count(graph, graph::OpKind::kExp) == 1);
  CHECK(count(graph, graph::OpKind::kRcp) == 1);
}

TEST_CASE("rules: those that do not come to an end are named") {
  graph::Graph graph = graph_of(kInputs +
                                "  %1 : f32[n, 16] = add %0 %0\n"
                                "  output \"y\" %1\n");
  const std::string rules =
      "rule there:\n  let x: float[...]\n  match x + x\n  yield x * 2\n  check exact\n"
      "rule back:\n  let x: float[...]\n  match x * 2\n  yield x + x\n  check exact\n";
  std::string message;
  try {
    rewritten(graph, rules);
  } catch (const Error& error) {
    message = error.diagnostic.message;
  }
  CHECK(message.find("there -> back -> there") + message.find("back -> there -> back") !=
        2 * std::string::npos);
  CHECK(extend::find_loop({parsed(rules)}).find("without end") != std::string::npos);
}

TEST_CASE("rules: a pattern is tried again where a value deep inside loses its other reader") {
  const std::vector<RuleFile> files = {
      parsed("rule twice shared:\n  let x: float[...]\n  match neg(neg(x))\n  yield x\n"
             "rule deep:\n  let x: float[...]\n  match tanh(abs(neg(x)))\n  yield exp(x)\n")};
  graph::Graph graph = graph_of(
      "  input %0 \"x\" : f32[4]\n"
      "  %1 : f32[4] = neg %0\n"
      "  %2 : f32[4] = abs %1\n"
      "  %3 : f32[4] = tanh %2\n"
      "  %4 : f32[4] = neg %1\n"
      "  output \"y\" %3\n"
      "  output \"z\" %4\n");
  const auto made = extend::rewrite(graph, extend::rules_at(files, "import"));
  CHECK(made.trace == std::vector<std::string>{"twice", "deep"});
  CHECK(count(graph, graph::OpKind::kExp) == 1);
}

TEST_CASE("rules: what is left out between sweeps changes no result") {
  // Explaining looks at every place in every sweep.
  const std::vector<RuleFile> files = {parsed(
      "rule twice shared:\n  let x: float[...]\n  match neg(neg(x))\n  yield x\n"
      "rule outwards:\n  let x: float[...]\n  match tanh(neg(x))\n  yield -tanh(x)\n"
      "rule sum:\n  let x: float[...], y: float[...]\n  match neg(x) + y\n  yield y - x\n"
      "rule same:\n  let x: float[...]\n  match x - x\n  yield x * 0\n"
      "rule double:\n  let x: float[...]\n  match x * 2\n  yield x + x\n"
      "rule deep:\n  let x: float[...]\n  match tanh(abs(neg(abs(x))))\n  yield exp(x)\n"
      "rule deeper:\n  let x: float[...]\n  match abs(sqrt(neg(x)))\n  yield exp(x)\n"
      "rule shared_deep shared:\n  let x: float[...]\n  match abs(abs(x) + abs(x))\n  yield 2 * abs(x)\n"
      "rule alone:\n  let x: float[...]\n  match sqrt(x)\n  where uses(x) == 1\n  yield exp(x)\n")};
  const auto rules = extend::rules_at(files, "import");
  size_t fired = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto drawn = [&] {
      std::mt19937_64 random(seed);
      graph::Graph graph;
      graph::Builder b(graph, ops::shape_table());
      std::vector<graph::ValueId> values = {b.input("x", {DType::kF32, {4}}), b.scalar(DType::kF32, 2)};
      const auto one = [&] {
        return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 4)];
      };
      using graph::OpKind;
      constexpr OpKind kOne[] = {OpKind::kNeg, OpKind::kNeg, OpKind::kAbs, OpKind::kTanh, OpKind::kSqrt};
      constexpr OpKind kTwo[] = {OpKind::kAdd, OpKind::kSub, OpKind::kMul};
      for (int i = 0; i < 40; ++i) {
        const OpKind kind =
            random() % 3 ? kOne[random() % std::size(kOne)] : kTwo[random() % std::size(kTwo)];
        const auto wide = [&](graph::ValueId value) {
          return b.rank(value) == 1
                     ? value
                     : b.add1(OpKind::kExpand, {value}, {{"shape", std::vector<sym::Expr>{4}}});
        };
        if (std::ranges::count(kOne, kind))
          values.push_back(b.add1(kind, {wide(one())}));
        else
          values.push_back(b.add1(kind, {wide(one()), wide(one())}));
      }
      for (size_t i = 1; i <= 3; ++i) b.output(cat("y", i), values[values.size() - i]);
      graph::eliminate_dead_code(graph);
      return graph;
    };
    graph::Graph once = drawn(), again = drawn();
    const auto fast = extend::rewrite(once, rules, {.throws = false});
    const auto slow = extend::rewrite(again, rules, {.explains = true, .throws = false});
    CHECK(fast.trace == slow.trace);
    CHECK(graph::to_string(once) == graph::to_string(again));
    fired += fast.trace.size();
  }
  CHECK(fired > 1000);
}

TEST_CASE("rules: broken files name line and column") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parsed(text);
    } catch (const Error& error) {
      return error.diagnostic.message;
    }
    return "";
  };
  CHECK(message("rule a:\n  let x: float[...]\n  match frob(x)\n  yield x\n") ==
        "test.rules:3:9: there is no operator 'frob'");
  CHECK(message("rule a:\n  let x: float[...]\n  match abs(x)\n  where rank(x) > q\n  yield x\n") ==
        "test.rules:4:19: 'q' is not bound");
  CHECK(message("rule a\n  match x") == "test.rules:2:3: expected ':', not 'match'");
  CHECK(message("\"") == "test.rules:1:1: a text has no closing quote");
}
