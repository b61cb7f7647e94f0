#include "compiler/ops/fixed_input.h"

#include <algorithm>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/sym/guard.h"

namespace stridec::ops {
namespace {

constexpr int64_t kMostElements = 64;  // each element is a symbol and a comparison in the run

[[noreturn]] void refuse(std::string message, std::string help) {
  fail(ErrorKind::kUsage, "bad-input-value", std::move(message), std::move(help));
}

// The number of elements, if they can be fixed.
std::optional<int64_t> count_of(const Builder& b, ValueId input) {
  if (is_float(b.dtype(input))) return std::nullopt;
  const auto count = sym::as_const(b.simplify(ops::count(b.shape(input))));
  return count && *count <= kMostElements ? count : std::nullopt;
}

// "--input-value s=1,2" for an input of two integers.
std::string example(const std::string& name, DType dtype, int64_t count) {
  constexpr int64_t kMost = 4;
  std::string values;
  for (int64_t i = 0; i < std::min(count, kMost); ++i)
    values +=
        cat(i ? "," : "", is_bool(dtype) ? "true" : std::to_string(integer_range(dtype).hi > 3 ? i + 1 : 0));
  return cat("--input-value ", name, "=", values, count > kMost ? ",..." : "");
}

void check_values(const Builder& b, const std::string& name, ValueId input, int64_t count,
                  const std::vector<int64_t>& values) {
  const DType dtype = b.dtype(input);
  const std::string typed = cat("input '", name, "' is ", graph::to_string(b.type(input)));
  if (count == 0) refuse(cat(typed, ", which has no elements"), "leave it open");
  const auto given = static_cast<int64_t>(values.size());
  if (given != count)
    refuse(cat(typed, ": ", given, given == 1 ? " value is given for " : " values are given for ", count,
               count == 1 ? " element" : " elements"),
           cat("write ", example(name, dtype, count)));
  const IntegerRange range = is_bool(dtype) ? IntegerRange{0, 1} : integer_range(dtype);
  for (const int64_t value : values)
    if (value < range.lo || (value > 0 && static_cast<uint64_t>(value) > range.hi))
      refuse(cat(typed, ", which cannot hold ", value),
             is_bool(dtype) ? cat("write --input-value ", name, "=true, or false")
                            : cat("its values are ", range.lo, " to ", range.hi));
}

// The graph's inputs that the elements of the values are computed from.
std::set<ValueId> inputs_behind(const graph::Graph& graph, std::vector<ValueId> open) {
  std::set<ValueId> seen(open.begin(), open.end()), inputs;
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (!graph[value].producer.valid()) {
      inputs.insert(value);
      continue;
    }
    for (const ValueId input : graph[graph[value].producer].inputs)
      if (seen.insert(input).second) open.push_back(input);
  }
  return inputs;
}

}  // namespace

std::string fixing_options(const graph::Builder& b, sym::Expr condition) {
  const graph::Graph& graph = b.graph();
  const std::vector<sym::Expr> symbols = sym::free_vars(condition);
  std::vector<ValueId> decided_by;
  for (const graph::Node& node : graph.nodes)
    if (node.kind == graph::OpKind::kSymbolOf &&
        std::ranges::count(symbols, node.attributes.expr("symbol")) > 0)
      decided_by.push_back(node.inputs.at(0));
  const std::set<ValueId> behind = inputs_behind(graph, std::move(decided_by));
  std::vector<std::string> options;
  for (size_t i = 0; i < graph.input_names.size(); ++i) {
    const ValueId input = graph.top.parameters.at(i);
    if (const auto count = count_of(b, input); count && *count > 0 && behind.contains(input))
      options.push_back(example(graph.input_names[i], b.dtype(input), *count));
  }
  return join(options, " ");
}

Term fixed_input(Builder& b, const std::string& name, std::optional<Term> input,
                 const std::vector<int64_t>& values) {
  if (!input || is_float(input->dtype()))
    refuse(cat("input '", name, "' does not hold integers or bools"), "fix inputs of integers and bools");
  const auto count = count_of(b, input->id());
  if (!count)
    refuse(cat("input '", name, "' ", graph::to_string(b.type(input->id())), " may have more than ",
               kMostElements, " elements"),
           "fix its sizes by --dim, or leave it open");
  check_values(b, name, input->id(), *count, values);
  std::vector<sym::Expr> elements;
  const Term flat = ops::reshape(*input, {*count});
  for (int64_t i = 0; i < *count; ++i) {
    const int64_t value = values[static_cast<size_t>(i)];
    elements.emplace_back(value);
    const Term one = ops::reshape(ops::slice(flat, 0, i, 1), {});
    b.add(graph::OpKind::kSymbolOf, {one},
          {{"symbol", b.fresh_symbol(name, value, value)},
           {"lower", sym::Expr(value)},
           {"upper", sym::Expr(value)},
           {"check", int64_t{1}},
           {"sentence", cat("input '", sym::escaped(name), "' is {0}, and this artifact is compiled for ",
                            value, " alone (--input-value)")}});
  }
  return {b, b.elements(elements, b.shape(input->id()), input->dtype())};
}

}  // namespace stridec::ops
