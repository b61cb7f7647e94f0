// What each fusion rule decides, as text: tests/golden/fusion/<rule>.txt has a nest 'producer' and a nest
// 'consumer' that fuse, contractions that are chained, or a nest 'both' whose loops are joined or whose
// buffer becomes local, what becomes of them, and a twin that the rule refuses. A rule without such a file
// fails here, by name. STRIDEC_UPDATE=1 writes what becomes of the first program.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/fusion/fusion_rules.h"

using namespace stridec;
using namespace stridec::schedule;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = STRIDEC_SOURCE_DIR "/tests/golden/fusion";
constexpr std::string_view kParts[] = {"==== fused\n", "==== after\n", "==== refused\n"};

fs::path file_of(const FusionRuleInfo& rule) { return kFolder / (std::string(rule.name) + ".txt"); }

// What follows each heading; before them a comment.
std::map<std::string_view, std::string> parts_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::map<std::string_view, std::string> parts;
  std::string* part = &parts[""];
  for (std::string line; std::getline(in, line);) {
    const auto heading = std::ranges::find(kParts, line + "\n");
    if (heading != std::end(kParts))
      part = &parts[*heading];
    else
      *part += line + "\n";
  }
  return parts;
}

// The position of the nest of this name among the program's steps.
int position_of(const loop::Program& program, std::string_view name) {
  const auto found = std::ranges::find_if(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    return launch && program[launch->nest].name == name;
  });
  REQUIRE(found != program.steps.end());
  return static_cast<int>(found - program.steps.begin());
}

struct Outcome {
  std::string text;
  std::string why;  // the rule refused; empty if it did not
};

// Fuses the nest 'producer' with the nest 'consumer'; returns why not.
std::string why_not_fused(const FusionRuleInfo& rule, loop::Program& program) {
  const int producer = position_of(program, "producer"), consumer = position_of(program, "consumer");
  Flow flow(program, program.steps);
  std::string why;
  Refusal refusal;
  bool fused = false;
  if (rule.family == FusionFamily::kInline || rule.family == FusionFamily::kCopy)
    fused = try_inline(program, program.steps, flow, producer, &why, rule.family == FusionFamily::kCopy);
  else
    fused = try_merge(program, program.steps, flow, producer, consumer, &refusal,
                      rule.family == FusionFamily::kColumns) >= 0;
  if (!refusal.reason.empty()) why = refusal.reason;
  CHECK(fused == why.empty());
  return why;
}

// Chains contractions; returns why not.
std::string why_not_chained(loop::Program& program) {
  std::vector<Decision> decisions;
  chain(program, &decisions);
  REQUIRE(decisions.size() == 1);
  constexpr std::string_view kRefused = "not chained: ";
  const std::string& reason = decisions[0].reason;
  CHECK(decisions[0].fused != reason.starts_with(kRefused));
  return decisions[0].fused ? "" : reason.substr(kRefused.size());
}

// Joins the loops of the nest 'both', or makes its buffer local; returns why not.
std::string why_not_changed(const FusionRuleInfo& rule, loop::Program& program) {
  const auto& step = program.steps[static_cast<size_t>(position_of(program, "both"))];
  loop::Nest& nest = program[std::get<loop::Launch>(step.node).nest];
  std::vector<FusionRule> refused;
  if (rule.family == FusionFamily::kJoin)
    join_loops(nest, &refused);
  else
    localise(program, nest, Flow(program, program.steps).counts(), &refused);
  CHECK(refused.size() <= 1);
  return refused.empty() ? "" : std::string(info(refused.front()).why);
}

Outcome applied(const FusionRuleInfo& rule, const std::string& text) {
  loop::Program program = loop::parse_program(text);
  loop::verify(program);
  const bool within = rule.family == FusionFamily::kJoin || rule.family == FusionFamily::kLocalise;
  Outcome out;
  out.why = rule.family == FusionFamily::kChain ? why_not_chained(program)
            : within                            ? why_not_changed(rule, program)
                                                : why_not_fused(rule, program);
  if (out.why.empty()) loop::eliminate_dead_code(program);
  loop::verify(program);
  out.text = loop::to_string(program);
  return out;
}

void check_rule(const FusionRuleInfo& rule, const fs::path& path, bool update) {
  auto parts = parts_of(path);
  const std::string before = parts[kParts[0]], twin = parts[kParts[2]];
  CHECK(loop::to_string(loop::parse_program(before)) == before);
  CHECK(loop::to_string(loop::parse_program(twin)) == twin);
  const Outcome made = applied(rule, before), left = applied(rule, twin);
  CHECK(made.why == "");
  CHECK(left.why == rule.why);
  CHECK(left.text == twin);
  if (update)
    std::ofstream(path, std::ios::binary)
        << parts[""] << kParts[0] << before << kParts[1] << made.text << kParts[2] << twin;
  else
    CHECK(made.text == parts[kParts[1]]);
}

}  // namespace

TEST_CASE("each fusion rule has a program that it changes, what becomes of it, and a twin that it refuses") {
  const bool update = std::getenv("STRIDEC_UPDATE");
  for (const FusionRuleInfo& rule : fusion_rules()) {
    INFO(std::string(rule.name));
    const fs::path path = file_of(rule);
    if (!fs::exists(path)) {
      FAIL_CHECK("the rule has no ", path.string(), ": docs/adding-a-pass.md says what it holds");
      continue;
    }
    try {
      check_rule(rule, path, update);
    } catch (const Error& error) {
      FAIL_CHECK(path.string(), ": ", error.text);
    }
  }
}

TEST_CASE("each text of a fusion rule is that of one") {
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    INFO(entry.path().string());
    CHECK(std::ranges::any_of(fusion_rules(),
                              [&](const FusionRuleInfo& rule) { return file_of(rule) == entry.path(); }));
  }
}
