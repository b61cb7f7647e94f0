#include "compiler/frontend/states.h"

#include <algorithm>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/text.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"

namespace stridec::frontend {
namespace {

using graph::ValueId;

[[noreturn]] void refuse(const std::string& message, const std::string& help) {
  fail(ErrorKind::kUsage, "bad-state", message, help);
}

// The text that the pattern's `*` matches in the name; "" if the pattern has no `*`; none without a match.
std::optional<std::string> matched(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = std::string_view(pattern).substr(0, star),
                         after = std::string_view(pattern).substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  return name.substr(star, name.size() - before.size() - after.size());
}

std::string replaced(const std::string& pattern, const std::string& text) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : cat(pattern.substr(0, star), text, pattern.substr(star + 1));
}

// Where a symbol comes from whose input has become a state: another input with a dim that is a multiple of
// it, or none, so that only the context determines it.
void take_from_another_input(const graph::Graph& graph, graph::Symbol& symbol) {
  symbol = {.var = symbol.var};
  for (size_t i = 0; i < graph.input_names.size(); ++i) {
    const graph::Shape& shape = graph[graph.top.parameters[i]].type.shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto linear = sym::linear_in(shape[d], symbol.var);
      const auto multiple = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (!multiple || *multiple < 1 || !linear->rest.is_const(0)) continue;
      symbol.input = static_cast<int>(i), symbol.dim = static_cast<int>(d), symbol.multiple = *multiple;
      return;
    }
  }
}

void keep(graph::Graph& graph, const std::string& input, const std::string& output) {
  const auto in = std::find(graph.input_names.begin(), graph.input_names.end(), input);
  const auto out = std::find(graph.output_names.begin(), graph.output_names.end(), output);
  if (out == graph.output_names.end())
    refuse(cat("--state: the model has no output '", output, "' for its input '", input, "'"),
           "'stridec inspect' lists inputs and outputs");
  const auto at = in - graph.input_names.begin(), result = out - graph.output_names.begin();
  const ValueId old = graph.top.parameters[static_cast<size_t>(at)],
                now = graph.top.results[static_cast<size_t>(result)];
  const graph::Type type = graph[old].type;
  if (graph[now].type.dtype != type.dtype || graph[now].type.shape.size() != type.shape.size())
    refuse(cat("--state: input '", input, "' is ", graph::to_string(type), ", output '", output, "' is ",
               graph::to_string(graph[now].type)),
           "a state must have one type");
  for (size_t d = 0; d < type.shape.size(); ++d) {
    const sym::Expr before = type.shape[d], after = graph[now].type.shape[d];
    if (before != after)
      refuse(cat("--state: dim ", d, " of '", input, "' is ", sym::to_string(before), ", of '", output, "' ",
                 sym::to_string(after)),
             "a state must have one size, since each run reads what the last one wrote");
  }
  graph.input_names.erase(in);
  graph.top.parameters.erase(graph.top.parameters.begin() + at);
  graph.top.parameters.push_back(old);
  graph.states.push_back({.name = input, .value = old, .initial = {}});
  graph.output_names.erase(out);
  graph.top.results.erase(graph.top.results.begin() + result);
  for (graph::Symbol& symbol : graph.symbols) {
    if (symbol.input > at)
      --symbol.input;
    else if (symbol.input == at)
      take_from_another_input(graph, symbol);
  }
  graph::Builder(graph, ops::shape_table()).add(graph::OpKind::kUpdateState, {old, now});
}

}  // namespace

StatePattern parse_state(std::string_view text) {
  const size_t equals = text.find('=');
  StatePattern out{.input = std::string(text.substr(0, equals)),
                   .output = equals == std::string_view::npos ? "" : std::string(text.substr(equals + 1))};
  const auto stars = [](const std::string& name) { return std::count(name.begin(), name.end(), '*'); };
  if (out.input.empty() || out.output.empty() || stars(out.input) > 1 ||
      stars(out.input) != stars(out.output))
    refuse(cat("'", text, "' is not of the form input=output"),
           "write --state past_key_0=present_key_0, or --state 'past_*=present_*'");
  return out;
}

void keep_states(graph::Graph& graph, const std::vector<StatePattern>& patterns,
                 std::set<std::string>* absent) {
  for (const StatePattern& pattern : patterns) {
    const std::vector<std::string> inputs = graph.input_names;  // a copy, because keep() removes names
    bool found = false;
    for (const std::string& input : inputs)
      if (const auto text = matched(pattern.input, input)) {
        keep(graph, input, replaced(pattern.output, *text));
        found = true;
      }
    if (!found && absent)
      absent->insert(cat("--state ", pattern.input));
    else if (!found)
      refuse(cat("--state: the model has no input '", pattern.input, "'"),
             "'stridec inspect' lists inputs and outputs");
  }
}

}  // namespace stridec::frontend
