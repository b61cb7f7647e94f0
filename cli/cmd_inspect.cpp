#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/inspect_schedule.h"
#include "cli/manifest_file.h"
#include "cli/node_fates.h"
#include "cli/output.h"
#include "cli/stage_drawing.h"
#include "cli/stage_text.h"
#include "cli/terminal.h"
#include "cli/trace_folder.h"
#include "cli/written_files.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/graph/serialize.h"
#include "compiler/loop/provenance.h"
#include "compiler/package/read_manifest.h"
#include "compiler/sym/phrase.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  CompileFlags common;
  std::string stage;
  int kernel = 0;  // starting at 1; 0: all
  int64_t threads = 1;
  std::string graph_file;
};

// At most `count` bytes; empty if the file cannot be read.
std::string first_bytes(const std::string& path, size_t count) {
  std::string bytes(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// The range of an input's values: "0..30521", "0.." or "".
std::string values_of(const Json& input) {
  if (input.value("content", "") == "image") return "an encoded image";
  const auto range = input.find("range");
  if (range == input.end()) return "";
  const auto bound = [&](const char* name) {
    if (!range->contains(name)) return std::string();
    const Json& value = range->at(name);
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    return text.find(' ') == std::string::npos ? text : cat("(", text, ")");
  };
  return cat(bound("minimum"), "..", bound("maximum"));
}

std::string shape_of(const Json& dims) {
  return "[" +
         join(dims, ", ", [](const Json& d) { return d.is_string() ? d.get<std::string>() : d.dump(); }) +
         "]";
}

// The dims as they lie in memory: "[batch, h, w, 3] in memory", or "" if that is row-major.
std::string memory_of(const Json& value) {
  const auto order = value.find("memory_order");
  if (order == value.end()) return "";
  Json dims = Json::array();
  for (const Json& dim : *order) dims.push_back(value["shape"].at(dim.get<size_t>()));
  return cat(shape_of(dims), " in memory");
}

void print_values(const Json& m, const char* kind) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& value : m[kind])
    rows.push_back(
        {value["name"], value["dtype"], shape_of(value["shape"]), values_of(value), memory_of(value)});
  if (!rows.empty()) std::printf(" %s\n%s", kind, table(rows, "   ").c_str());
}

void print_symbols_and_guards(const Json& m) {
  std::vector<std::vector<std::string>> symbols;
  for (const Json& s : m["symbols"])
    symbols.push_back({s["name"],
                       cat(s["minimum"].dump(), "..", s.contains("maximum") ? s["maximum"].dump() : ""),
                       s["multiple"] == 1 ? "" : "multiple of " + s["multiple"].dump(),
                       s.value("of_context", false) ? "a context is created with it"
                       : s["from"].is_string()      ? "known only during a run"
                                                    : ""});
  if (!symbols.empty()) std::printf(" symbols\n%s", table(symbols, "   ").c_str());
  for (const Json& guard : m["guards"])
    std::printf(" needs      %s\n",
                wrapped(cat(sym::phrase(sym::parse(guard["condition"].get<std::string>())), "; otherwise ",
                            printable(guard["sentence"].get<std::string>())),
                        12, 12, columns())
                    .c_str());
}

// Operators that stay one step: kernels of the user, and what the application has to register.
void print_routines(const Json& m) {
  std::set<std::string> callbacks;
  std::vector<std::vector<std::string>> rows = {{"operator", "computed by", "of"}};
  for (const Json& each : m.value("routines", Json::array())) {
    const bool callback = each.value("callback", false);
    if (callback) callbacks.insert(each["name"]);
    rows.push_back({each["name"], callback ? "the application's callback" : "the user's code",
                    loop::nodes_of(each.value("nodes", std::vector<std::string>()))});
  }
  if (rows.size() > 1) std::printf(" operators of the user\n%s", table(rows, "   ").c_str());
  for (const std::string& name : callbacks)
    std::printf(" needs      %s\n",
                wrapped(cat("a callback '", name, "', which the application registers: context_set_callback"),
                        12, 12, columns())
                    .c_str());
}

void print_kernels(const Json& m) {
  std::vector<std::vector<std::string>> rows = {{"#", "kernel", "launches", "of", "schedule"}};
  for (const Json& k : m["kernels"])
    rows.push_back({std::to_string(rows.size()), k["name"], k["launches"].dump(),
                    loop::nodes_of(k.value("nodes", std::vector<std::string>())), k["schedule"]});
  if (rows.size() > 1) std::printf(" kernels\n%s", table(rows, "   ").c_str());
  print_routines(m);
  if (m.contains("nodes"))
    std::printf(
        " nodes      %s\n",
        wrapped(cat(summary_of(nodes_of(m)), "; --stage=nodes lists them"), 12, 12, columns()).c_str());
}

std::string source_of(const Json& m) {
  return cat("from ", m["model"].value("file", ""), " (sha256 ", m["model"].value("sha256", "").substr(0, 12),
             ")");
}

// What is true of the artifact as a whole. `workspace`: of the only function.
void print_requirements(const Json& m, const std::string& workspace) {
  std::printf(" targets    %s\n", join(m["targets"], "; ", [](const Json& target) {
                                    const auto text = [](const Json& v) { return v.get<std::string>(); };
                                    return cat(text(target["device"]), ": ",
                                               join(target["variants"], ", ", text));
                                  }).c_str());
  const std::string weights = cat("weights ", human_bytes(m["memory"]["weights_bytes"].get<uint64_t>()));
  std::printf(
      " memory     %s\n",
      wrapped(workspace.empty() ? weights : cat(weights, "; workspace ", workspace, " B"), 12, 12, columns())
          .c_str());
  const Json& needs = m["requires"];
  std::printf(" needs      glibc >= %s; no other library%s\n", needs["glibc"].get<std::string>().c_str(),
              needs.contains("driver")
                  ? cat("; on a GPU NVIDIA's driver >= ", needs["driver"].get<std::string>()).c_str()
                  : "");
}

void print_metadata(const Json& m) {
  if (!m.contains("metadata")) return;
  for (const auto& [key, value] : m["metadata"].items())
    std::printf(" metadata   %s\n",
                wrapped(printable(cat(key, " = ", value.get<std::string>())), 12, 12, columns()).c_str());
}

void print_manifest(const Json& m, const std::string& file) {
  std::printf("%s  %s, %s, mode %s\n", file.c_str(), m.value("compiler", "").c_str(), source_of(m).c_str(),
              m.value("mode", "").c_str());
  print_metadata(m);
  for (const char* kind : {"inputs", "outputs", "states"}) print_values(m, kind);
  print_symbols_and_guards(m);
  print_requirements(m, m["memory"]["workspace_bytes"].get<std::string>());
  print_kernels(m);
}

// Of an artifact of several functions: the named ones, or all.
void print_functions(const Json& m, const std::string& file, const std::vector<std::string>& names) {
  const std::vector<Json> functions = package::functions_of(m);
  const auto text = [](const Json& function) { return function["name"].get<std::string>(); };
  std::printf("%s  %s, functions %s, mode %s\n", file.c_str(), m.value("compiler", "").c_str(),
              join(functions, ", ", text).c_str(), m.value("mode", "").c_str());
  print_metadata(m);
  print_values(m, "states");
  print_requirements(m, "");
  for (const Json& function : functions) {
    if (!names.empty() && std::ranges::count(names, text(function)) == 0) continue;
    std::printf("function %s, %s\n", text(function).c_str(), source_of(function).c_str());
    for (const char* kind : {"inputs", "outputs"}) print_values(function, kind);
    if (!function["states"].empty())
      std::printf(" uses       states %s\n", join(function["states"], ", ", text).c_str());
    print_symbols_and_guards(function);
    std::printf(" memory     %s\n",
                wrapped(cat("workspace ", function["memory"]["workspace_bytes"].get<std::string>(), " B"), 12,
                        12, columns())
                    .c_str());
    print_kernels(function);
  }
}

void check_names(const Json& m, const std::vector<std::string>& names) {
  const std::vector<Json> functions = package::functions_of(m);
  const auto text = [](const Json& function) { return function["name"].get<std::string>(); };
  for (const std::string& name : names)
    if (std::ranges::none_of(functions, [&](const Json& function) { return function["name"] == name; }))
      fail(ErrorKind::kUsage, "unknown-function", cat("the artifact has no function '", name, "'"),
           cat("its functions are ", join(functions, ", ", text)));
}

// The manifest, whose list of functions has the named ones alone.
std::string with_functions(Json m, const std::vector<std::string>& names) {
  if (const auto functions = m.find("functions"); functions != m.end()) {
    Json named = Json::array();
    for (const Json& function : *functions)
      if (std::ranges::count(names, function["name"].get<std::string>()) > 0) named.push_back(function);
    *functions = std::move(named);
  }
  return cat(m.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

// Of each function, or of the named ones.
void print_nodes(const Json& manifest, const std::vector<std::string>& names, const Globals& globals) {
  const bool several = manifest.contains("functions");
  Json all = Json::array();
  for (const Json& function : package::functions_of(manifest)) {
    const auto name = function["name"].get<std::string>();
    if (!names.empty() && std::ranges::count(names, name) == 0) continue;
    const std::vector<NodeRow> nodes = nodes_of(function);
    if (globals.json) {
      all.push_back(nodes_json(nodes));
      if (several) all.back()["function"] = name;
      continue;
    }
    if (several) std::printf("// ==== %s\n", name.c_str());
    std::printf("%s", nodes_text(nodes).c_str());
  }
  if (globals.json)
    std::printf("%s\n", (several ? Json{{"stage", "nodes"}, {"functions", all}} : all.front())
                            .dump(2, ' ', false, Json::error_handler_t::replace)
                            .c_str());
}

int inspect_artifact(const Flags& flags, const Globals& globals) {
  const std::string text = read_manifest_text(flags.common.model);
  if (!flags.stage.empty() && flags.stage != "manifest" && flags.stage != "nodes")
    fail(ErrorKind::kUsage, "no-such-stage",
         cat("an artifact holds its manifest and nodes, not the stage '", flags.stage, "'"),
         "give the model itself for the stages of its compilation");
  const Json manifest = package::read_manifest(text, flags.common.model);
  const std::vector<std::string>& names = flags.common.functions;
  check_names(manifest, names);
  if (!globals.diagram.empty())
    fail(ErrorKind::kUsage, "no-diagram", "an artifact has no graph to draw",
         "give the model itself, with --stage=graph, fused or schedule");
  if (flags.stage == "nodes")
    print_nodes(manifest, names, globals);
  else if (globals.json)
    std::printf("%s", names.empty() ? text.c_str() : with_functions(manifest, names).c_str());
  else if (manifest.contains("functions"))
    print_functions(manifest, flags.common.model, names);
  else
    print_manifest(manifest, flags.common.model);
  return 0;
}

// Fails before the work where the graph file would replace one that is read.
void check_graph_file(const std::string& path, const std::vector<std::string>& inputs) {
  check_outputs({{path, "the graph", "choose another name: --write-graph model.graph"}}, inputs);
  check_extension(path, "the graph", {".graph"}, "--write-graph model.graph");
}

int write_graph(const graph::Graph& graph, const std::string& path) {
  UnfinishedFile file(path);
  graph::serialize(graph, [&](const uint8_t* bytes, size_t size) { file.write(bytes, size); });
  file.commit();
  return 0;
}

// Drawings are of the first function.
int print_drawing(const Compilation& made, const StageView& view, const Globals& globals) {
  const std::string text = stage_drawing(made.main(), view, globals.diagram);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

int print_stage(const Compilation& made, const StageView& view, const Globals& globals) {
  if (globals.json)
    std::printf("%s\n", stage_json(made, view).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  else if (view.stage == "schedule")
    print_lines(stage_text(made, view), kScheduleIndent);
  else
    std::printf("%s", stage_text(made, view).c_str());
  return 0;
}

void check_stage(const Flags& flags, const std::string& stage, const CompileOptions& options,
                 const Globals& globals) {
  if (stage == "rewrites" && options.extensions.rules.empty())
    fail(ErrorKind::kUsage, "usage", "--stage=rewrites shows what rules do, and no rules are given",
         "add --rewrites FILE");
  if (stage == "kernels" && options.extensions.kernels.empty())
    fail(ErrorKind::kUsage, "usage",
         "--stage=kernels shows which kernels of your own are chosen, and none are given",
         "add --kernels FOLDER");
  if (!flags.graph_file.empty() && options.functions.size() > 1)
    fail(ErrorKind::kUsage, "usage", "a graph file has one function", "write one for each model");
  if (!globals.diagram.empty()) check_drawing(stage, globals.diagram);
}

int run(const Flags& flags, const Globals& globals) {
  const std::string start = flags.common.model.empty() ? "" : first_bytes(flags.common.model, 16);
  const size_t first = start.find_first_not_of(" \t\r\n");
  if (start.starts_with("\x7f"
                        "ELF") ||
      (first != std::string::npos && start[first] == '{'))
    return inspect_artifact(flags, globals);
  const std::string stage = flags.stage.empty() ? "graph" : flags.stage;
  CompileOptions options = flags.common.options(globals);
  options.extensions.explains = stage == "rewrites";
  check_stage(flags, stage, options, globals);
  const Stage last = !flags.graph_file.empty() || stage == "graph"                   ? Stage::kGraph
                     : stage == "loops" || stage == "rewrites" || stage == "kernels" ? Stage::kLoops
                     : stage == "source" || stage == "manifest"                      ? Stage::kArtifact
                                                                                     : Stage::kSchedule;
  check_graph_file(flags.graph_file, flags.common.files());
  const TraceFolder trace(options, flags.common.traced(), globals);
  const Compilation made = compile(options, last);
  for (const FunctionResult& function : made.functions) {
    print_warnings(function.warnings, globals);
    check_graph_file(flags.graph_file, function.files);
  }
  trace.write(made, last);
  if (!flags.graph_file.empty()) return write_graph(made.main().graph, flags.graph_file);
  const StageView view{.stage = flags.stage, .kernel = flags.kernel, .threads = flags.threads};
  return globals.diagram.empty() ? print_stage(made, view, globals) : print_drawing(made, view, globals);
}

}  // namespace

std::function<int()> declare_inspect(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  flags->common.declare(app, "a model (.onnx, .pt2, .pt), an artifact (.so) or a manifest (.json)");
  app.add_option("--stage", flags->stage,
                 "what to print of a model (default: its inputs, outputs and graph), or of an artifact: "
                 "manifest or nodes")
      ->check(CLI::IsMember({"graph", "loops", "schedule", "fused", "nodes", "rewrites", "kernels", "memory",
                             "source", "manifest"}));
  app.add_option("--write-graph", flags->graph_file,
                 "write the model as stridec's own serialized graph, which compiles like the model")
      ->type_name("FILE");
  app.add_option("--kernel", flags->kernel, "with --stage=source: only this kernel, counted from 1")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option("--threads", flags->threads,
                 "with --stage=memory: the threads of the run, whose private memory counts")
      ->check(above_zero)
      ->type_name("COUNT");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
