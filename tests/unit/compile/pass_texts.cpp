// What each pass does, as text: tests/golden/passes/<pass>.txt has a program that it changes, what becomes
// of it, and a twin that it leaves as it is. A pass without such a file fails here, by name.
//
// STRIDEC_UPDATE=1 writes what becomes of the first program. STRIDEC_TRY=FOLDER runs the pass that the first
// line of each FOLDER/*.in names on the rest of the file, and writes what becomes of it to *.out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "compiler/base/diagnostic.h"
#include "compiler/base/gpu_target.h"
#include "compiler/base/pass.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/pass_list.h"

using namespace stridec;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = STRIDEC_SOURCE_DIR "/tests/golden/passes";

// Passes that choose or place, and rewrite nothing that text shows best; and where they are tested.
const std::map<std::string_view, std::string_view> kNoText = {
    // Its programs have several hundred lines.
    {"gpu attention_backward", "tests/unit/schedule/attention_backward.cpp"},
    {"attention_backward", "tests/unit/codegen_products/attention_backward.cpp"},
    // Its program needs a tensor of 64 MB.
    {"row_blocks", "tests/unit/schedule/row_blocks.cpp"},
    {"schedules", "tests/unit/schedule/heuristics_*.cpp"},
    {"gpu schedules", "tests/unit/codegen_cuda"},
    {"memory", "tests/unit/schedule/arena.cpp"},
    {"gpu memory", "tests/unit/schedule/arena.cpp"},
};

std::vector<Pass> all_passes() {
  std::vector<Pass> all;
  for (const auto& rows : {passes::graph_passes(), schedule::loop_passes(), schedule::cpu_loop_passes(),
                           schedule::cpu_passes(), schedule::cpu_memory_passes(), schedule::gpu_loop_passes(),
                           schedule::gpu_passes(), schedule::gpu_memory_passes()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

// The text after the pass; of a graph without the nodes that it made dead.
std::string after(const Pass& pass, const std::string& text) {
  const Options options;
  const schedule::Chosen none;
  const CpuTarget cpu = cpu_target("x86-64-v3");
  const PassContext context{.options = options,
                            .factors = DType::kBF16,
                            .graphs = true,
                            .cpu = &cpu,
                            .gpu = &gpu_target("sm_90a"),
                            .chosen = &none};
  if (pass.runs_on == RunsOn::kGraph) {
    graph::Graph graph = graph::parse(text);
    std::get<Pass::OnGraph>(pass.run)(graph, context);
    graph::eliminate_dead_code(graph);
    const auto problems = graph::problems(graph, ops::shape_table());
    if (!problems.empty()) return cat("error: ", problems.front());
    return graph::to_string(graph);
  }
  loop::Program program = loop::parse_program(text);
  loop::verify(program);
  schedule::run_on_program(pass, program, context);
  loop::verify(program);
  return loop::to_string(program);
}

// The text as it is printed. Throws Error that names the heading that the text is under.
std::string normal(const Pass& pass, std::string_view heading, const std::string& text) {
  try {
    if (pass.runs_on != RunsOn::kGraph) return loop::to_string(loop::parse_program(text));
    return graph::to_string(graph::parse(text));
  } catch (Error& error) {
    const std::string under(heading.substr(0, heading.size() - 1));
    fail(error.diagnostic.kind, error.diagnostic.code,
         cat("the program under '", under, "' cannot be parsed: ", error.diagnostic.message));
  }
}

fs::path file_of(const Pass& pass) {
  std::string name(pass.name);
  std::ranges::replace(name, ' ', '_');
  return kFolder / (name + ".txt");
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

constexpr std::string_view kParts[] = {"==== before\n", "==== after\n", "==== unchanged\n"};

// What follows each heading; before them a comment.
std::map<std::string_view, std::string> parts_of(const std::string& text) {
  std::map<std::string_view, std::string> parts;
  std::string* part = &parts[""];
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto heading = std::ranges::find(kParts, line + "\n");
    if (heading != std::end(kParts))
      part = &parts[*heading];
    else
      *part += line + "\n";
  }
  return parts;
}

void check_text(const Pass& pass, const fs::path& path, bool update) {
  auto parts = parts_of(read(path));
  const std::string before = parts[kParts[0]], twin = parts[kParts[2]];
  REQUIRE(!before.empty());
  REQUIRE(!twin.empty());
  CHECK(normal(pass, kParts[0], before) == before);
  CHECK(normal(pass, kParts[2], twin) == twin);
  const std::string made = after(pass, before);
  CHECK(made != before);
  CHECK(after(pass, twin) == twin);
  if (update)
    std::ofstream(path, std::ios::binary)
        << parts[""] << kParts[0] << before << kParts[1] << made << kParts[2] << twin;
  else
    CHECK(made == parts[kParts[1]]);
}

}  // namespace

TEST_CASE("each pass has a program that it changes, what becomes of it, and a twin that it leaves alone") {
  const bool update = std::getenv("STRIDEC_UPDATE");
  for (const Pass& pass : all_passes()) {
    INFO(std::string(pass.name));
    const fs::path path = file_of(pass);
    if (kNoText.contains(pass.name)) {
      CHECK(!fs::exists(path));
      continue;
    }
    if (!fs::exists(path)) {
      FAIL_CHECK("the pass has no ", path.string(), ": docs/adding-a-pass.md says what it holds");
      continue;
    }
    try {
      check_text(pass, path, update);
    } catch (const Error& error) {
      FAIL_CHECK(path.string(), ": ", error.text);
    }
  }
}

TEST_CASE("each text of a pass is that of one") {
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    INFO(entry.path().string());
    CHECK(std::ranges::any_of(all_passes(), [&](const Pass& pass) { return file_of(pass) == entry.path(); }));
  }
}

TEST_CASE("passes on files of the user's" * doctest::skip(!std::getenv("STRIDEC_TRY"))) {
  std::map<std::string, Pass> passes;
  for (const Pass& pass : all_passes()) passes.emplace(pass.name, pass);
  for (const auto& entry : fs::directory_iterator(std::getenv("STRIDEC_TRY"))) {
    if (entry.path().extension() != ".in") continue;
    const std::string text = read(entry.path());
    const size_t line = text.find('\n');
    std::string out;
    try {
      out = after(passes.at(text.substr(0, line)), text.substr(line + 1));
    } catch (const std::exception& error) {
      out = cat("error: ", error.what(), "\n");
    }
    std::ofstream(fs::path(entry.path()).replace_extension(".out"), std::ios::binary) << out;
  }
}
