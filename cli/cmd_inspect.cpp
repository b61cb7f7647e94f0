#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/diagram.h"
#include "cli/inspect_schedule.h"
#include "cli/manifest_file.h"
#include "cli/model_summary.h"
#include "cli/node_fates.h"
#include "cli/output.h"
#include "cli/rewrites_report.h"
#include "cli/terminal.h"
#include "cli/written_files.h"
#include "compiler/base/counted.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/graph/serialize.h"
#include "compiler/graph/text.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
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

void print_values(const Json& m, const char* kind) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& value : m[kind])
    rows.push_back({value["name"], value["dtype"], shape_of(value["shape"]), values_of(value)});
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

// For a buffer with a data-dependent size: the operation that determines the size.
std::string size_known_after(const loop::Program& program, const loop::Buffer& buffer) {
  std::map<loop::BufferId, std::string> made_by;
  std::map<sym::Expr, std::string, sym::ExprLess> bound_by;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node))
      bound_by[bind->symbol] = made_by[bind->buffer];
    if (const auto* loop = std::get_if<loop::While>(&step.node)) bound_by[loop->iterations] = "its loop";
    if (const auto* call = std::get_if<loop::Call>(&step.node))
      for (loop::BufferId id : call->writes) made_by[id] = call->nodes.empty() ? "" : call->nodes.back();
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
      const loop::Nest& nest = program[launch->nest];
      loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
        if (const auto* store = std::get_if<loop::Store>(&stmt.node))
          made_by[store->access.buffer] = nest.nodes.empty() ? nest.name : nest.nodes.front();
      });
    }
  });
  std::string after;
  for (sym::Expr dim : buffer.shape)
    for (sym::Expr var : sym::free_vars(dim))
      if (const auto found = bound_by.find(var); found != bound_by.end() && !found->second.empty())
        after = found->second;
  return after;
}

// A row for each buffer of the arena, and the same as JSON.
struct MemoryRows {
  std::vector<std::vector<std::string>> rows = {{"buffer", "type", "offset", "elements"}};
  Json buffers = Json::array();
};

MemoryRows memory_rows(const loop::Program& program) {
  MemoryRows out;
  std::set<std::string> own;  // of tiled-and-fused groups
  for (const loop::TiledGroup* strips : loop::tiled_groups_of(program))
    for (loop::BufferId id : strips->own) own.insert(program[id].name);
  for (const auto& buffer : program.buffers) {
    if (buffer.storage != loop::Storage::kArena) continue;
    const std::string elements = sym::to_string(loop::element_count(buffer.shape)), type(name(buffer.dtype));
    Json json = {{"name", buffer.name}, {"dtype", type}, {"offset", nullptr}, {"elements", elements}};
    if (own.contains(buffer.name)) {
      out.rows.push_back({buffer.name, type, "a thread's own, for a strip", elements});
      json["strip"] = true;
      out.buffers.push_back(std::move(json));
      continue;
    }
    const bool planned = !buffer.offset.is_const(-1);
    const std::string after = planned ? "" : size_known_after(program, buffer);
    out.rows.push_back({buffer.name, type,
                        planned         ? sym::to_string(buffer.offset)
                        : after.empty() ? "allocated during the run"
                                        : cat("allocated during the run, size known after ", after),
                        elements});
    if (planned)
      json["offset"] = sym::to_string(buffer.offset);
    else
      json["allocated_after"] = after;
    out.buffers.push_back(std::move(json));
  }
  return out;
}

std::string memory_text(const loop::Program& program) {
  return cat(" ",
             wrapped(cat("weights ", human_bytes(static_cast<uint64_t>(program.weight_bytes)), "; arena ",
                         sym::to_string(program.arena_bytes), " bytes"),
                     3, 1, columns()),
             "\n", table(memory_rows(program).rows));
}

Json memory_json(const loop::Program& program) {
  return {{"stage", "memory"},
          {"weight_bytes", program.weight_bytes},
          {"arena_bytes", sym::to_string(program.arena_bytes)},
          {"buffers", memory_rows(program).buffers}};
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

// Resource use of a GPU kernel, from its cubin and its launch.
std::string resources_text(const codegen::cuda::BuiltKernel& kernel) {
  const codegen::cuda::Resources& r = kernel.resources;
  if (!r.registers) return cat("// ", kernel.target.name, "\n");
  const auto dynamic = sym::as_const(kernel.dynamic_shared);
  std::string out = cat("// ", kernel.target.name, ": ", r.registers, " registers, ", r.shared_bytes,
                        dynamic == 0 ? std::string() : cat(" + ", sym::to_string(kernel.dynamic_shared)),
                        " bytes of shared memory, ", r.stack_bytes, " of stack",
                        r.stack_loads + r.stack_stores == 0
                            ? std::string()
                            : cat(" (", r.stack_loads, " loads, ", r.stack_stores, " stores)"),
                        ", ", r.code_bytes, " of code; ", kernel.threads, " threads");
  const int blocks = resident_blocks(r, kernel.threads, static_cast<int>(dynamic.value_or(0)), kernel.target);
  return cat(out, dynamic ? ", " : ", at most ", counted(blocks, "block"), " a multiprocessor, ",
             100 * blocks * kernel.threads / kernel.target.threads_sm, " % of its threads\n");
}

std::string source_text(const Compilation& made, int chosen) {
  std::string text;
  int number = 0;
  for (const auto& kernel : made.device.kernels)
    if (++number == chosen || chosen == 0)
      text += cat("// ---- ", number, ": ", join(kernel.nests, ", "), "\n", resources_text(kernel),
                  kernel.text, "\n");
  for (const auto& kernel : made.built.kernels)
    if (++number == chosen || chosen == 0)
      text += cat("// ---- ", number, ": ", join(kernel.nests, ", "), "\n", kernel.text, "\n");
  if (chosen > number)
    fail(ErrorKind::kUsage, "no-such-kernel", cat("there is no kernel ", chosen, "; there are ", number));
  return text;
}

// `stage`: "" for what the model is, and its graph.
std::string text_of(const FunctionResult& made, const std::string& stage) {
  if (stage.empty())
    return cat(made.source.model, "  ", made.summary, "\n", to_text(summarize(made.graph, made.facts, true)),
               "\n", graph::to_string(made.graph));
  if (stage == "graph") return graph::to_string(made.graph);
  if (stage == "loops") return loop::to_string(made.loops);
  if (stage == "memory") return memory_text(*made.programs().front());
  if (stage == "nodes") return nodes_text(nodes_of(made));
  if (stage == "rewrites") return rewrites_text(made.rules);
  if (stage == "kernels") return own_kernels_text(made.kernels);
  return loop::to_string(*made.programs().front());
}

Json json_of(const FunctionResult& made, const std::string& stage) {
  if (stage.empty())
    return {{"stage", "graph"},
            {"model", to_json(summarize(made.graph, made.facts, true))},
            {"text", graph::to_string(made.graph)}};
  if (stage == "memory") return memory_json(*made.programs().front());
  if (stage == "schedule") return schedule_json(made);
  if (stage == "nodes") return nodes_json(nodes_of(made));
  if (stage == "rewrites") return rewrites_json(made.rules);
  if (stage == "kernels") return own_kernels_json(made.kernels);
  return {{"stage", stage}, {"text", text_of(made, stage)}};
}

// One drawing; of several functions, that of the first.
int print_diagram(const FunctionResult& made, const std::string& stage, const std::string& format) {
  const Diagram diagram = stage == "graph" ? diagram_of(made.graph) : diagram_of(*made.programs().front());
  const std::string text = format == "dot" ? to_dot(diagram) : to_svg(diagram);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

// Stages that each function has: as text, one after the other, or as JSON, of several functions as a list.
void print_stage(const Compilation& made, const std::string& stage, const Globals& globals) {
  const bool several = made.functions.size() > 1;
  Json all = Json::array();
  for (const FunctionResult& function : made.functions) {
    if (globals.json) {
      all.push_back(json_of(function, stage));
      if (several) all.back()["function"] = function.name();
      continue;
    }
    if (several) std::printf("// ==== %s\n", function.name().c_str());
    if (stage == "schedule")
      print_schedule(function);
    else
      std::printf("%s", text_of(function, stage).c_str());
  }
  if (globals.json)
    std::printf("%s\n",
                (several ? Json{{"stage", stage.empty() ? "graph" : stage}, {"functions", all}} : all.front())
                    .dump(2, ' ', false, Json::error_handler_t::replace)
                    .c_str());
}

void print_whole(const std::string& stage, const std::string& text, const Globals& globals) {
  const Json json = {{"stage", stage}, {"text", text}};
  std::printf("%s", globals.json ? cat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n").c_str()
                                 : text.c_str());
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
  if (stage == "rewrites" && options.extensions.rules.empty())
    fail(ErrorKind::kUsage, "usage", "--stage=rewrites shows what rules do, and no rules are given",
         "add --rewrites FILE");
  if (stage == "kernels" && options.extensions.kernels.empty())
    fail(ErrorKind::kUsage, "usage",
         "--stage=kernels shows which kernels of your own are chosen, and none are given",
         "add --kernels FOLDER");
  const Stage last = !flags.graph_file.empty() || stage == "graph"                   ? Stage::kGraph
                     : stage == "loops" || stage == "rewrites" || stage == "kernels" ? Stage::kLoops
                     : stage == "source" || stage == "manifest"                      ? Stage::kArtifact
                                                                                     : Stage::kSchedule;
  if (!flags.graph_file.empty() && options.functions.size() > 1)
    fail(ErrorKind::kUsage, "usage", "a graph file has one function", "write one for each model");
  if (!globals.diagram.empty() && stage != "graph" && stage != "fused" && stage != "schedule")
    fail(ErrorKind::kUsage, "no-diagram", cat("the stage '", stage, "' cannot be drawn"),
         "--format=dot and svg are for --stage=graph, fused and schedule");
  check_graph_file(flags.graph_file, flags.common.files());
  const Compilation made = compile(options, last);
  for (const FunctionResult& function : made.functions) {
    print_warnings(function.warnings, globals);
    check_graph_file(flags.graph_file, function.files);
  }
  if (!flags.graph_file.empty()) return write_graph(made.main().graph, flags.graph_file);
  if (!globals.diagram.empty()) return print_diagram(made.main(), stage, globals.diagram);
  if (stage == "manifest")
    print_whole(stage, made.artifact.manifest, globals);
  else if (stage == "source")
    print_whole(stage, source_text(made, flags.kernel), globals);
  else
    print_stage(made, flags.stage, globals);
  return 0;
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
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
