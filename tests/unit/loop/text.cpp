#include "compiler/loop/text.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/buffer_names.h"
#include "compiler/loop/origin.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

std::string golden() {
  std::ifstream in(STRIDEC_SOURCE_DIR "/tests/golden/loop/program.txt");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

WeightData weight(const Buffer& b) {
  static const std::vector<float> bytes(32, 1.5f);
  if (b.name != "encoder/layer.0 w") return {};
  return {nullptr, reinterpret_cast<const uint8_t*>(bytes.data()), 128};
}

std::string refused(const std::string& text) {
  try {
    parse_program(text);
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kMalformed);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("every declaration, step and statement prints as it parses") {
  Program program = parse_program(golden(), weight);
  CHECK(to_string(program) == golden());
  CHECK(program.nests.size() == 4);
  CHECK(program.steps.size() == 5);
  CHECK(program.nests[1].schedule.directives[1].args == std::vector<std::string>{"%r1", "16"});
  CHECK(program.facts.known_divisor(sym::var("batch")) == 4);
}

TEST_CASE("facts beyond ranges are kept") {
  std::string text = "program p\n  symbol a in 1..9\n  symbol b in 1..9\n  assume a <= b\n  steps\n";
  Program program = parse_program(text);
  CHECK(program.facts.holds(sym::le(sym::var("a"), sym::var("b"))));
  CHECK(to_string(parse_program(to_string(program))) == to_string(program));
}

TEST_CASE("origins of values print as they parse, and values without one get that of their uses") {
  const std::string head =
      "program p\n  input x f32 [8, 4]\n  output y f32 [8]\n  inputs (x)\n  outputs (y)\n  steps\n"
      "    nest 0 sum (%i0<8)\n      nodes \"node 0 'a' (Mul)\", \"node 1 'b' (ReduceSum)\"\n";
  const std::string text = head +
                           "      %0 : f32 = constant 0.5 from 0.2\n"
                           "      %1 : f32 = reduce sum (%r1<4) from 1.2\n"
                           "        %2 : f32 = load x[%i0, %r1] if %r1 <= 2 else 0 from 0.1\n"
                           "        %3 : f32 = mul %2 %0 from 0.3\n"
                           "        %4 : f32 = index %r1 from 1\n"
                           "        %5 : f32 = add %3 %4 from 1\n"
                           "        yield %5\n"
                           "      store y[%i0] %1\n";
  const Program program = parse_program(text);
  CHECK(to_string_with_origins(program) == text);
  CHECK(program.nests[0].values[3].origin.part == 3);
  CHECK(text_of(program.nests[0].values[3].origin.node) == "node 0 'a' (Mul)");
  CHECK(to_string(program).find(" from ") == std::string::npos);
  std::string without = text;  // values made by passes
  for (const char* known : {" from 0.2", " if %r1 <= 2 else 0 from 0.1", " %r1 from 1", " %4 from 1"}) {
    const size_t at = without.find(known) + std::string(known).rfind(" from");
    without.erase(at, std::string(known).size() - std::string(known).rfind(" from"));
  }
  std::string found = text;  // the factor and the load are for the product, the sum's term for the sum
  for (const char* part : {"0.2", "0.1"}) found.replace(found.find(cat("from ", part, "\n")) + 6, 2, "");
  CHECK(to_string_with_origins(parse_program(without)) == found);
  CHECK(refused(head + "      %0 : f32 = constant 1 from 2\n") ==
        "line 9, column 35: the nest has no node 2");
  CHECK(refused(head + "      %0 : f32 = constant 1 from 0.-1\n").find("out of range") != std::string::npos);
  CHECK(refused(head + "      %0 : f32 = constant 1 from\n").find("expected an integer") !=
        std::string::npos);
}

TEST_CASE("inputs, outputs and states of one name print as they parse") {
  Program program;
  const auto add = [&](Storage storage) {
    return add_buffer(program, {.name = "a \"b\"", .storage = storage, .ordinal = 0});
  };
  program.inputs.push_back(add(Storage::kInput));
  program.outputs.push_back(add(Storage::kOutput));
  program.states.push_back(add(Storage::kState));
  program.outputs.push_back(
      add_buffer(program, {.name = "a \"b\"_1", .storage = Storage::kOutput, .ordinal = 1}));
  add_buffer(program, {.name = "a \"b\"", .storage = Storage::kArena});
  const Program parsed = parse_program(to_string(program));
  CHECK(to_string(parsed) == to_string(program));
  for (const Program& p : {program, parsed}) {
    CHECK(p[p.inputs[0]].name == "a \"b\"");
    CHECK(p[p.outputs[0]].name == "a \"b\"");
    CHECK(p[p.states[0]].name == "a \"b\"");
    CHECK(p[p.outputs[1]].name == "a \"b\"_1");
    CHECK(p.buffers[4].name == "a \"b\"_2");
  }
}

TEST_CASE("an index of names gives buffers the names that they get without it") {
  Program with, without;
  BufferNames names(with);
  const std::string given[] = {"a",   "",  "a", "a_1", "a", "t5",  "", "a_1",
                               "b_2", "b", "b", "b",   "",  "a_x", "a"};
  for (int round = 0; round < 3; ++round)
    for (const std::string& name : given) {
      const Buffer buffer{.name = name, .ordinal = name == "b" && round == 1 ? 0 : -1};
      add_buffer(without, buffer);
      if (name == "b_2")
        add_buffer(with, buffer);
      else
        add_buffer(with, buffer, names);
    }
  REQUIRE(with.buffers.size() == without.buffers.size());
  std::set<std::string> all;
  for (size_t i = 0; i < with.buffers.size(); ++i) {
    CHECK(with.buffers[i].name == without.buffers[i].name);
    if (with.buffers[i].ordinal < 0) CHECK(all.insert(with.buffers[i].name).second);
  }
}

TEST_CASE("weights whose bytes changed are refused") {
  CHECK_THROWS_AS(parse_program(golden(),
                                [](const Buffer&) {
                                  static const std::vector<float> other(32, 2.5f);
                                  return WeightData{nullptr, reinterpret_cast<const uint8_t*>(other.data()),
                                                    128};
                                }),
                  Error);
}

TEST_CASE("what is not a program is refused with its line") {
  CHECK(refused("") == "the text of a program is empty");
  CHECK(refused("program p\n") == "line 1, column 10: the program has no steps");
  CHECK(refused("program p\n  input x f33 []\n  steps\n") == "line 2, column 14: unknown dtype 'f33'");
  CHECK(refused("program p\n   steps\n") == "line 2, column 4: expected indentation of two spaces per level");
  CHECK(refused("program p\n  steps\n    launch 0\n") == "line 3, column 13: no nest 0");
  CHECK(refused("program p\n  steps\n    nest 0 a ()\n      store y[] %0\n") ==
        "line 4, column 14: unknown buffer 'y'");
  CHECK(refused("program p\n  steps\n    nest 0 a ()\n      %99999999 : f32 = constant 0\n") ==
        "line 4, column 22: the number of the value is too large");
  CHECK(refused("program p\n  input x f32 [a b]\n  steps\n") == "line 2, column 18: expected ']'");
  CHECK(refused("program p\n  input x f32 [((((1]\n  steps\n") != "accepted");
  std::string deep = "program p\n  steps\n    nest 0 a ()\n";
  for (int i = 3; i < 500; ++i) deep += std::string(2 * i, ' ') + "for (%j" + std::to_string(i) + "<2)\n";
  CHECK(refused(deep).find("too deeply nested") != std::string::npos);
}

TEST_CASE("hostile text is refused or parsed, never more") {
  std::mt19937 random(7);
  const std::string text = golden();
  REQUIRE(!text.empty());
  for (int round = 0; round < 3000; ++round) {
    std::string broken = text;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      size_t at = random() % broken.size();
      switch (random() % 4) {
        case 0: broken.erase(at, 1 + random() % 20); break;
        case 1: broken.insert(at, 1, "%()[]<`\" 9\n"[random() % 11]); break;
        case 2: broken[at] = static_cast<char>(random()); break;
        default: broken.insert(at, broken.substr(random() % broken.size(), random() % 40));
      }
      if (broken.empty()) broken = " ";
    }
    try {
      Program p = parse_program(broken);
      std::string printed = to_string(p);
      CHECK(to_string(parse_program(printed)) == printed);
    } catch (const Error&) {
    }
  }
}
