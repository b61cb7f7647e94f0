// Prints what the compiler decides and writes for one model, as text; tests/replay.py compares it with golden
// hashes.
//
//   replay MODEL.onnx [--dim NAME=RANGE,...] [--cpu NAME,...] [--gpu NAME,...] [--precision NAME]
//          [--state IN=OUT]
//
// No toolchain runs and no weight is packed. The output is a list of sections; each begins with a line
// "==== NAME":
//
//   decisions             what fusion did and refused, with reasons
//   schedules             candidates of each CPU kernel and their expected cycles, of the first variant
//   program TARGET        the scheduled loop program with the memory plan
//   kernel TARGET SYMBOL  the text of one kernel
//   host                  the text of the host program
//   manifest              the manifest, but for hashes and versions
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/loop/text.h"
#include "compiler/package/manifest.h"
#include "compiler/sym/text.h"

using namespace stridec;

namespace {

void section(const std::string& name, const std::string& text) {
  std::printf("==== %s\n%s%s", name.c_str(), text.c_str(), text.empty() || text.back() == '\n' ? "" : "\n");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::string name_of(const std::string& target, sym::Expr when) {
  return when.is_const(1) ? target : cat(target, " if ", sym::to_string(when));
}

std::string text_of(const std::vector<schedule::Decision>& decisions) {
  std::string out;
  for (const schedule::Decision& d : decisions)
    out += cat(d.fused ? "fused " : "apart ", d.producer, " -> ", d.consumer, ": ", d.reason, " [",
               sym::to_string(d.bytes), "]\n");
  return out;
}

std::string text_of(const std::vector<schedule::Choice>& choices, const loop::Program& program) {
  std::string out;
  for (const schedule::Choice& choice : choices) {
    out += cat(program[choice.nests.front()].name, " x", choice.nests.size(), ": ",
               to_string(choice.schedule), ", cycles ", choice.cycles, " of ", choice.space);
    for (const auto& other : choice.others) out += cat("; ", other.family, " ", other.cycles);
    out += "\n";
  }
  return out;
}

std::string text_of(const codegen::cuda::BuiltKernel& kernel) {
  return cat("// ", join(kernel.nests, ", "), "; threads ", kernel.threads, ", shared ",
             sym::to_string(kernel.dynamic_shared), "\n", kernel.text);
}

void print(const Compilation& made) {
  section("decisions", text_of(made.main().decisions));
  const FunctionResult& main = made.main();
  if (!main.variants.empty()) section("schedules", text_of(main.choices, main.variants.front().program));
  for (const auto& variant : made.main().gpu_variants)
    section("program " + variant.target.name, loop::to_string(variant.program));
  for (const auto& variant : made.main().variants)
    section("program " + name_of(variant.target.name, variant.when), loop::to_string(variant.program));
  for (const auto& kernel : made.device.kernels)
    section(cat("kernel ", kernel.target.name, " ", kernel.symbol), text_of(kernel));
  for (const auto& kernel : made.built.kernels)
    section(cat("kernel ", kernel.cpu, " ", kernel.symbol),
            cat("// ", join(kernel.nests, ", "), "\n", kernel.text));
  section("host", made.built.host_text);
  package::ManifestFacts facts;
  for (const auto& variant : made.main().variants) facts.variants.push_back(variant.target.name);
  for (const auto& variant : made.main().gpu_variants) facts.gpu_variants.push_back(variant.target.name);
  facts.functions.push_back({.program = made.programs().front()});
  section("manifest", package::manifest(facts));
}

CompileOptions options_of(int argc, char** argv) {
  CompileOptions options{.model = argv[1], .targets = {}};
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::vector<std::string> values = split(argv[i + 1]);
    if (flag == "--dim")
      options.dims = frontend::parse_dims(argv[i + 1]);
    else if (flag == "--cpu")
      options.cpus = values, options.targets.push_back("cpu");
    else if (flag == "--gpu")
      options.gpus = values, options.targets.push_back("cuda");
    else if (flag == "--precision")
      options.precision = argv[i + 1];
    else if (flag == "--state")
      for (const std::string& value : values) options.states.push_back(frontend::parse_state(value));
    else
      fail(ErrorKind::kUsage, "unknown-option", "unknown option " + flag);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(
        stderr,
        "usage: replay MODEL.onnx [--dim ...] [--cpu ...] [--gpu ...] [--precision ...] [--state ...]\n");
    return 1;
  }
  try {
    print(compile(options_of(argc, argv), Stage::kSource));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "replay: %s\n", error.text.c_str());
    return 1;
  }
}
