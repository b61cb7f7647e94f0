#include "cli/model_summary.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/terminal.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/value_range.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const graph::Shape& shape) {
  return cat("[", join(shape, ", ", [](sym::Expr dim) { return sym::to_string(dim); }), "]");
}

std::string range_text(const loop::ValueRange& range) {
  if (range.image) return "an encoded image";
  if (range.none()) return "";
  const auto bound = [](const std::optional<sym::Expr>& e) { return e ? sym::to_string(*e) : ""; };
  return cat(bound(range.least), "..", bound(range.most));
}

using SizesByName = std::map<std::string, int64_t>;

std::optional<int64_t> size_of(const SizesByName& sizes, sym::Expr var) {
  const auto found = sizes.find(var.name());
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

// Sizes within their ranges, each at least `wanted` where its range allows that.
SizesByName sizes_from(const graph::Graph& graph, int64_t wanted) {
  SizesByName sizes;
  for (const graph::Symbol& symbol : graph.symbols) {
    if (!graph::is_bound_before_run(graph, symbol)) continue;
    const sym::Interval range = graph.facts.bounds(symbol.var);
    const int64_t multiple = std::max<int64_t>(1, graph.facts.known_divisor(symbol.var));
    const int64_t least = (std::max(wanted, range.lo) + multiple - 1) / multiple * multiple;
    sizes[symbol.var.name()] = std::min(least, range.hi / multiple * multiple);
  }
  return sizes;
}

// The smallest sizes of a few that meet the guards, at least 1.
SizesByName smallest_sizes(const graph::Graph& graph) {
  for (int64_t wanted = 1; wanted <= 1024; wanted *= 2) {
    const SizesByName sizes = sizes_from(graph, wanted);
    const auto broken = [&](const sym::Guard& guard) {
      return sym::evaluate(guard.condition, [&](sym::Expr var) { return size_of(sizes, var); }) == 0;
    };
    if (std::ranges::none_of(graph.guards, broken)) return sizes;
  }
  return sizes_from(graph, 1);
}

// Of the launches outside loops once, and of those in loops for one iteration.
double flops_of(const loop::Program& program, const SizesByName& sizes) {
  double flops = 0;
  const auto lookup = [&](sym::Expr var) -> std::optional<int64_t> {
    return size_of(sizes, var).value_or(1);  // 1: a size that depends on data
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node))
      flops += static_cast<double>(
          sym::evaluate(loop::cost_of(program, program[launch->nest]).flops, lookup).value_or(0));
  });
  return flops;
}

std::string scaled(double number) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (number >= 1000 && unit + 1 < std::size(kUnits)) number /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f%s" : "%.1f%s", number, kUnits[unit]);
  return text;
}

// The most frequent first.
std::vector<std::pair<std::string, int64_t>> sorted(const std::map<std::string, int64_t>& operators) {
  std::vector<std::pair<std::string, int64_t>> all(operators.begin(), operators.end());
  sort_stable(all, [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

void add_rows(std::string& text, const char* title, const std::vector<ModelSummary::Value>& values) {
  std::vector<std::vector<std::string>> rows;
  for (const ModelSummary::Value& value : values)
    rows.push_back({value.name, std::string(name(value.type.dtype)), shape_text(value.type.shape),
                    range_text(value.range)});
  if (!rows.empty()) text += cat(" ", title, "\n", table(rows, "   "));
}

Json number_json(sym::Expr e) { return e.is_const() ? Json(e.value()) : Json(sym::to_string(e)); }

Json values_json(const std::vector<ModelSummary::Value>& values) {
  Json rows = Json::array();
  for (const ModelSummary::Value& value : values) {
    Json shape = Json::array();
    for (const sym::Expr dim : value.type.shape) shape.push_back(number_json(dim));
    Json row = {{"name", value.name}, {"dtype", name(value.type.dtype)}, {"shape", std::move(shape)}};
    if (value.range.least) row["range"]["minimum"] = number_json(*value.range.least);
    if (value.range.most) row["range"]["maximum"] = number_json(*value.range.most);
    if (value.range.image) row["content"] = "image";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

ModelSummary summarize(const graph::Graph& graph, const frontend::ModelFacts& facts, bool complete) {
  ModelSummary made{.facts = facts};
  const auto describe = [&](const std::string& name, graph::ValueId id) {
    return ModelSummary::Value{name, graph[id].type, {}};
  };
  const size_t inputs = std::min(graph.input_names.size(), graph.top.parameters.size()),
               outputs = std::min(graph.output_names.size(), graph.top.results.size());
  for (size_t i = 0; i < inputs; ++i)
    made.inputs.push_back(describe(graph.input_names[i], graph.top.parameters[i]));
  for (size_t i = 0; i < outputs; ++i)
    made.outputs.push_back(describe(graph.output_names[i], graph.top.results[i]));
  for (const graph::State& state : graph.states) made.states.push_back(describe(state.name, state.value));
  if (!complete) return made;
  const loop::Program program = ops::lower(graph);
  const auto ranges = loop::input_ranges(program);
  for (size_t i = 0; i < std::min(ranges.size(), made.inputs.size()); ++i) made.inputs[i].range = ranges[i];
  const auto sizes = smallest_sizes(graph);
  made.flops = flops_of(program, sizes);
  made.sizes = join(sizes, ", ", [](const auto& size) { return cat(size.first, " ", size.second); });
  return made;
}

std::string to_text(const ModelSummary& summary) {
  std::string text;
  add_rows(text, "inputs", summary.inputs);
  add_rows(text, "outputs", summary.outputs);
  add_rows(text, "states", summary.states);
  text +=
      cat(" parameters ", summary.facts.parameters, " (", human_bytes(summary.facts.parameter_bytes), ")\n");
  int64_t nodes = 0;
  for (const auto& [name, count] : summary.facts.operators) nodes += count;
  const std::string operators = join(sorted(summary.facts.operators), ", ", [](const auto& each) {
    return cat(printable(each.first), "\u00a0", each.second);  // wrapping keeps the two together
  });
  if (nodes > 0)
    text += replaced(cat(" operators  ", wrapped(operators, 12, 12, columns()), "\n"), "\u00a0", " ");
  if (summary.flops >= 0)
    text += cat(" flops      ", scaled(summary.flops),
                summary.sizes.empty() ? "" : cat(" at ", summary.sizes), "\n");
  return text;
}

Json to_json(const ModelSummary& summary) {
  Json json = {{"inputs", values_json(summary.inputs)},
               {"outputs", values_json(summary.outputs)},
               {"states", values_json(summary.states)},
               {"parameters", summary.facts.parameters},
               {"parameter_bytes", summary.facts.parameter_bytes},
               {"operators", Json::object()}};
  for (const auto& [name, count] : sorted(summary.facts.operators)) json["operators"][name] = count;
  if (summary.flops >= 0) json["flops"] = {{"count", summary.flops}, {"sizes", summary.sizes}};
  return json;
}

}  // namespace stridec::cli
