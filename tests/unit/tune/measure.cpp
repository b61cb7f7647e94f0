#include "compiler/tune/measure.h"

#include <doctest/doctest.h>

#include <functional>

#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"

using namespace stridec;
using namespace stridec::tune;
using Kind = Outcome::Kind;

namespace {

// A kernel with the ABI's signature and this body; `data` is its first buffer.
std::string object(const std::string& name, const std::string& body) {
  const CpuTarget& target = cpu_target("native");
  return codegen::compile_to_object(
      name,
      cat("struct failure { int code; }; struct args { void* const* buffers; const long* sizes; char* "
          "scratch; "
          "long stride; char* failures; };\nextern \"C\" void undefined();\nextern \"C\" void ",
          name, "(const args* a, long begin, long end, int part) {\n  float* data = (float*)a->buffers[0];\n",
          body, "\n}\n"),
      {.cpu = target.name, .tune = target.tune});
}

std::string work(int times) {
  return cat("for (int t = 0; t < ", times,
             "; ++t) for (long i = begin * 64; i < end * 64; ++i) data[i] = data[i] * 0.5f + 1;");
}

struct Race {
  std::vector<std::string> names, objects;
  void add(const std::string& name, const std::string& body) {
    names.push_back(name);
    objects.push_back(object(name, body));
  }
  std::vector<Outcome> run(const MeasureOptions& options) const {
    std::vector<Subject> subjects;
    for (size_t i = 0; i < names.size(); ++i)
      subjects.push_back({.objects = {&objects[i]},
                          .symbol = names[i],
                          .arguments = {{.bytes = 64 * 64 * 4, .dtype = DType::kF32, .weight = i % 2 == 1}},
                          .sizes = {0},
                          .tasks = 64,
                          .grain = 8});
    return measure(subjects, options);
  }
};

// Other work may take a core away for longer than a race lasts. One undisturbed race of five shows whether
// the measurement distinguishes the kernels; if there is none, returns the outcomes of the last race.
std::vector<Outcome> left_alone(const std::function<std::vector<Outcome>()>& race,
                                const std::function<bool(const std::vector<Outcome>&)>& told_apart) {
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 5; ++i) {
    outcomes = race();
    for (const Outcome& outcome : outcomes) REQUIRE(outcome.kind == Kind::kTimed);
    if (told_apart(outcomes)) break;
  }
  return outcomes;
}

}  // namespace

TEST_CASE("a slower kernel measures slower, by about as much as it is") {
  Race race;
  race.add("first", work(400));
  race.add("half", work(200));
  race.add("same", work(400));
  race.add("slow", work(4000));
  for (const int threads : {1, 2}) {
    const auto outcomes =
        left_alone([&] { return race.run({.threads = threads, .rotate_bytes = 1 << 20, .seconds = 0.1}); },
                   [](const auto& o) {
                     return o[1].ratio < 0.8 && o[2].ratio > 0.6 && o[2].ratio < 1.6 && o[3].ratio > 4 &&
                            o[3].rounds < o[1].rounds;
                   });
    CHECK(outcomes[0].ratio == 1);
    CHECK(outcomes[1].ratio < 0.8);
    CHECK(outcomes[2].ratio > 0.6);
    CHECK(outcomes[2].ratio < 1.6);
    CHECK(outcomes[3].ratio > 4);
    CHECK(outcomes[3].rounds < outcomes[1].rounds);  // eliminated from the race
    CHECK(outcomes[1].seconds > 0);
  }
}

TEST_CASE(
    "a crash, a hang, code that does not link and a failed check are results; the others are measured") {
  Race race;
  race.add("good", work(10));
  race.add("crash", "*(volatile int*)8 = 1;");
  race.add("trap", "__builtin_trap();");
  race.add("hang", "for (volatile int i = 0;; i = i + 1) {}");
  race.add("unlinked", "undefined();");
  race.add("check", "((failure*)a->failures)->code = 1;");
  race.add("later", "static int calls; if (++calls > 40) *(volatile int*)8 = 1;" + work(10));
  race.add("twice", work(20));
  const auto outcomes = race.run({.threads = 1, .seconds = 0.05, .hang_seconds = 1.5});
  CHECK(outcomes[0].kind == Kind::kTimed);
  CHECK(outcomes[1].kind == Kind::kCrashed);
  CHECK(outcomes[1].reason.find("signal 11") != std::string::npos);
  CHECK(outcomes[2].kind == Kind::kCrashed);
  CHECK(outcomes[3].kind == Kind::kHung);
  CHECK(outcomes[4].kind == Kind::kFailed);
  CHECK(!outcomes[4].reason.empty());
  CHECK(outcomes[5].kind == Kind::kFailed);
  CHECK(outcomes[6].kind == Kind::kCrashed);
  CHECK(outcomes[7].kind == Kind::kTimed);
}

TEST_CASE("a run of several kernels is timed as one") {
  const std::string once = object("once", work(200)), thrice = object("thrice", work(600));
  auto kernel = [](const std::string& name, const std::string& code) {
    return Subject{.objects = {&code},
                   .symbol = name,
                   .arguments = {{.bytes = 64 * 64 * 4, .dtype = DType::kF32}},
                   .sizes = {0},
                   .tasks = 64,
                   .grain = 8};
  };
  Subject both, one;
  both.kernels = {kernel("once", once), kernel("thrice", thrice)};
  both.order = {0, 1, 0};
  one.kernels = {kernel("once", once)};
  one.order = {0};
  const auto outcomes = left_alone([&] { return measure({both, one}, {.threads = 2, .seconds = 0.1}); },
                                   [](const auto& o) { return o[1].ratio > 0.1 && o[1].ratio < 0.4; });
  CHECK(outcomes[1].ratio > 0.1);
  CHECK(outcomes[1].ratio < 0.4);
}

TEST_CASE("without a first kernel there is nothing to compare with") {
  Race race;
  race.add("broken", "__builtin_trap();");
  race.add("good", work(1));
  const auto outcomes = race.run({.threads = 1, .seconds = 0.05});
  CHECK(outcomes[0].kind == Kind::kCrashed);
  CHECK(outcomes[1].kind == Kind::kFailed);
}

TEST_CASE("estimates are medians with their error") {
  CHECK(estimate({}).median == 0);
  CHECK(estimate({3}).median == 3);
  CHECK(estimate({1, 2, 3, 4}).median == 2.5);
  CHECK(estimate({5, 1, 100}).median == 5);
  CHECK(estimate({2, 2, 2}).error == 0);
  CHECK(estimate({1, 2, 3}).error > estimate({1, 2, 3, 1, 2, 3, 1, 2, 3}).error);
}
