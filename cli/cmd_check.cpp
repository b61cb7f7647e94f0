#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "compiler/base/counted.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/extend/user_operator.h"
#include "compiler/extensions.h"
#include "compiler/frontend/import.h"
#include "compiler/function_flags.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/kernel_host.h"
#include "compiler/sym/phrase.h"
#include "compiler/sym/text.h"
#include "compiler/train/train.h"
#include "compiler/unsupported.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

Json problem_json(const Diagnostic& d) {
  return {{"code", d.code},           {"message", d.message}, {"node", d.where.node}, {"op", d.where.op},
          {"tensor", d.where.tensor}, {"notes", d.notes},     {"help", d.help}};
}

int exit_code(const std::vector<Diagnostic>& problems) {
  return problems.empty() ? 0 : static_cast<int>(problems.front().kind);
}

// The node at the start of a guard's sentence: "node 9 'add' (Add): dims differ".
std::string node_of(const sym::Guard& guard) {
  const std::string text = sym::render(guard);
  const size_t end = text.find("): ");
  return text.starts_with("node ") && end != std::string::npos ? text.substr(0, end + 1) : "";
}

bool is_data_dependent(const graph::Graph& graph, sym::Expr e) {
  const auto vars = sym::free_vars(e);
  return std::any_of(graph.symbols.begin(), graph.symbols.end(), [&](const graph::Symbol& symbol) {
    return !graph::is_bound_before_run(graph, symbol) &&
           std::find(vars.begin(), vars.end(), symbol.var) != vars.end();
  });
}

// The sizes that a caller may choose: one line per size that the inputs determine, with its range and the
// nodes that restrict it.
std::vector<std::vector<std::string>> symbol_rows(const graph::Graph& graph) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& symbol : graph.symbols) {
    if (!graph::is_bound_before_run(graph, symbol)) continue;
    const sym::Interval range = graph.facts.bounds(symbol.var);
    const bool any = range.lo <= 0 && !range.has_hi();
    std::string text = any ? "any size" : range.has_hi() ? sym::to_string(range) : cat(range.lo, " or more");
    if (const int64_t multiple = graph.facts.known_divisor(symbol.var); multiple > 1)
      text += cat(", multiple of ", multiple);
    std::string nodes;
    for (const auto& guard : graph.guards)
      if (sym::bounded_variable(guard.condition) == symbol.var)
        nodes += (nodes.empty() ? "asked for by " : ", ") + node_of(guard);
    std::string from =
        symbol.input < 0
            ? ""
            : cat("dim ", symbol.dim, " of '", graph.input_names[static_cast<size_t>(symbol.input)], "'",
                  symbol.multiple == 1 ? "" : cat(" is ", symbol.multiple, " times it"));
    if (graph::is_context_size(graph, symbol.var))
      from += from.empty() ? "a context is created with it" : "; a context is created with it";
    rows.push_back({symbol.var.name(), text, from, nodes});
  }
  return rows;
}

// With --quiet: the problems alone, on stderr.
void print_problems(const std::vector<Diagnostic>& problems) {
  for (const Diagnostic& problem : problems) std::fprintf(stderr, "%s", render(problem).c_str());
}

void print_text(const std::string& file, const frontend::Imported& imported, const ModelSummary& summary) {
  const graph::Graph& graph = imported.graph;
  std::printf("%s  %s\n%s", file.c_str(), imported.summary.c_str(), to_text(summary).c_str());
  if (const auto rows = symbol_rows(graph); !rows.empty())
    std::printf(" symbols\n%s", table(rows, "   ").c_str());
  for (const auto& guard : graph.guards)
    if (!sym::bounded_variable(guard.condition))
      std::printf(" needs      %s\n",
                  wrapped(cat(sym::phrase(guard.condition), "; otherwise ", printable(sym::render(guard))),
                          12, 12, columns())
                      .c_str());
  for (size_t i = 0; i < graph.top.results.size(); ++i) {
    const graph::Type& type = graph[graph.top.results[i]].type;
    if (std::any_of(type.shape.begin(), type.shape.end(),
                    [&](sym::Expr dim) { return is_data_dependent(graph, dim); }))
      std::printf(" note       output '%s' %s has a size that depends on the data\n",
                  printable(graph.output_names[i]).c_str(), graph::to_string(type).c_str());
  }
  for (const Diagnostic& warning : imported.warnings)
    std::printf(" warning    %s\n", warning_text(warning).c_str());
  std::printf(" problems   %s\n",
              imported.problems.empty() ? "none" : std::to_string(imported.problems.size()).c_str());
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < imported.problems.size(); ++i) {
    const Diagnostic& d = imported.problems[i];
    rows.push_back({std::to_string(i + 1), d.code, d.where.node.empty() ? d.where.tensor : d.where.node,
                    d.message + (d.help.empty() ? "" : " (" + d.help + ")")});
  }
  std::printf("%s", table(rows, "   ").c_str());
}

Json report_json(const std::string& file, const frontend::Imported& imported, const ModelSummary& summary) {
  const graph::Graph& graph = imported.graph;
  Json json = {{"file", file},
               {"summary", imported.summary},
               {"model", to_json(summary)},
               {"problems", Json::array()},
               {"warnings", Json::array()},
               {"symbols", Json::array()},
               {"guards", Json::array()}};
  for (const auto& d : imported.problems) json["problems"].push_back(problem_json(d));
  for (const auto& d : imported.warnings) json["warnings"].push_back(problem_json(d));
  for (const auto& symbol : graph.symbols) {
    if (!graph::is_bound_before_run(graph, symbol)) continue;
    const sym::Interval range = graph.facts.bounds(symbol.var);
    Json entry = {{"name", symbol.var.name()}, {"minimum", std::max<int64_t>(range.lo, 0)}};
    if (range.has_hi()) entry["maximum"] = range.hi;
    entry["multiple"] = std::max<int64_t>(1, graph.facts.known_divisor(symbol.var));
    if (symbol.input < 0)
      entry["from"] = "context";
    else
      entry["from"] = {{"input", graph.input_names[static_cast<size_t>(symbol.input)]}, {"dim", symbol.dim}};
    if (graph::is_context_size(graph, symbol.var)) entry["of_context"] = true;
    json["symbols"].push_back(std::move(entry));
  }
  for (const auto& guard : graph.guards)
    json["guards"].push_back({{"condition", sym::to_string(guard.condition)},
                              {"node", node_of(guard)},
                              {"sentence", sym::render(guard)}});
  return json;
}

// "3 of 12 weights, ..." of a list that may be long.
std::string some(const std::vector<std::string>& names) {
  constexpr size_t kMost = 6;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return cat(join(first, ", "), names.size() > kMost ? cat(" and ", names.size() - kMost, " more") : "");
}

void print_training(const train::Report& report) {
  const auto line = [](const std::string& text) {
    std::printf(" training   %s\n", wrapped(printable(text), 12, 12, columns()).c_str());
  };
  if (const size_t count = report.plan.adapted.size(); count > 0)
    line(cat(counted(count, "weight"), count == 1 ? " has" : " have",
             " trained adapters: ", some(report.plan.adapted)));
  if (const size_t count = report.plan.parameters.size(); count > 0)
    line(cat(counted(count, "weight"), count == 1 ? " is" : " are",
             " trained: ", some(report.plan.parameters)));
  line(cat(counted(report.elements, "element"), report.elements == 1 ? " is" : " are", " trained"));
  for (const train::AddedInput& input : report.inputs)
    line(cat("input '", input.name, "' ", graph::to_string(input.type), " is added, for ", input.setting));
  if (report.plan.scales_loss) line("the loss is scaled");
  if (!report.plan.statistics.empty())
    line(cat(counted(report.plan.statistics.size() / 2, "batch normalization"),
             report.plan.statistics.size() == 2 ? " uses" : " use", " the batch's statistics in a step"));
  line(report.random_nodes > 0 ? "dropout draws anew in each step"
                               : "no dropout: an export in evaluation mode leaves it out");
  if (!report.plan.unreached.empty())
    line(cat("the loss does not depend on ",
             counted(report.plan.unreached.size(), "weight, which stays as it is",
                     "weights, which stay as they are"),
             ": ", some(report.plan.unreached)));
}

Json shape_json(const graph::Shape& shape) {
  Json dims = Json::array();
  for (sym::Expr dim : shape) dims.push_back(dim.is_const() ? Json(dim.value()) : Json(sym::to_string(dim)));
  return dims;
}

Json training_json(const train::Report& report) {
  Json inputs = Json::array();
  for (const train::AddedInput& input : report.inputs)
    inputs.push_back({{"name", input.name},
                      {"dtype", name(input.type.dtype)},
                      {"shape", shape_json(input.type.shape)},
                      {"setting", input.setting}});
  return {{"inputs", std::move(inputs)},        {"parameters", report.plan.parameters},
          {"adapted", report.plan.adapted},     {"scales_loss", report.plan.scales_loss},
          {"elements", report.elements},        {"statistics", report.plan.statistics},
          {"unreached", report.plan.unreached}, {"random_nodes", report.random_nodes}};
}

int run(const CompileFlags& flags, const Globals& globals) {
  const CompileOptions options = flags.options(globals);
  name_stage("reading");
  check_extensions(options);
  const Targets targets = select_targets(options.targets, options.cpus, options.gpus);
  // Lowering a large graph takes longer than checking it: 'inspect' shows its flops.
  constexpr size_t kMostNodes = 4000;
  const bool says = globals.json || !globals.quiet;
  Json all = Json::array();
  int code = 0;
  std::vector<std::set<std::string>> absent;
  const extend::Operators operators(options.extensions.operators, kernel_host());
  std::vector<graph::UnknownCall> unknown;
  // All functions of a training are of one model.
  const auto functions = options.training ? std::vector<FunctionModel>{{"", options.model, options.method}}
                                          : options.entry_points();
  for (const FunctionModel& function : functions) {
    const FunctionFlags own = flags_of(options, function);
    std::set<std::string>& lacks = absent.emplace_back();
    frontend::ImportOptions how{.dims = own.dims,
                                .shapes = own.shapes,
                                .input_values = own.input_values,
                                .states = own.states,
                                .refit = own.refit,
                                .method = function.method,
                                .torch_random = torch_random(options),
                                .weights = options.weights.get(),
                                .absent = options.functions.empty() ? nullptr : &lacks,
                                .operators = &operators};
    if (options.training) how.training = training_import(*options.training, true);
    auto imported = frontend::import_file(function.model, how);
    const bool complete = imported.problems.empty();
    std::optional<train::Report> training;
    if (complete && options.training) {
      training = train::check_training(imported.graph, *options.training);
      imported.problems = training->problems;
      if (!training->planned) training.reset();
    } else if (complete) {
      apply_rules(imported.graph, options.extensions);
      imported.problems = unsupported_steps(imported.graph, targets);
    }
    if (code == 0) code = exit_code(imported.problems);
    std::ranges::move(imported.unknown, std::back_inserter(unknown));
    if (!says) {
      print_problems(imported.problems);
      continue;
    }
    const bool counts = complete && imported.graph.nodes.size() <= kMostNodes;
    const ModelSummary summary = summarize(imported.graph, imported.facts, counts);
    if (globals.json) {
      all.push_back(report_json(function.model, imported, summary));
      if (!function.name.empty()) all.back()["function"] = function.name;
      if (training) all.back()["training"] = training_json(*training);
    } else {
      print_text(function.name.empty() ? function.model : cat(function.name, ": ", function.model), imported,
                 summary);
      if (training) print_training(*training);
    }
  }
  if (code == 0 && !options.training) check_used(options, absent);
  const bool single = options.functions.empty() || options.training;
  if (!unknown.empty() && !globals.json && says)
    std::printf(" draft of --ops FILE, with the shapes of this model; write the bodies\n%s",
                extend::draft_operators(unknown).c_str());
  if (!unknown.empty() && globals.json)
    all.front()["ops_draft"] = Json::parse(extend::draft_operators(unknown));
  if (globals.json)
    std::printf("%s\n", (single ? all.front() : Json{{"functions", all}})
                            .dump(2, ' ', false, Json::error_handler_t::replace)
                            .c_str());
  else if (code != 0 && says)
    std::printf("exit code %d\n", code);
  return code;
}

}  // namespace

std::function<int()> declare_check(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<CompileFlags>();
  flags->declare(app);
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli
