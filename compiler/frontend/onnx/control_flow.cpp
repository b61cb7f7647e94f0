// If, Loop and Scan.
#include <algorithm>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_branches.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/fixed_input.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/region.h"
#include "compiler/sym/guard.h"

namespace stridec::onnx {
namespace {

using namespace ops;

std::vector<ValueId> tensors(const Context& c, const Outputs& slots, std::string_view what) {
  std::vector<ValueId> out;
  for (const Slot& s : slots) {
    if (s.kind != Slot::Kind::kTensor)
      c.unsupported(cat(what, " gives a sequence or optional whose length only the run tells"));
    out.push_back(s.tensor);
  }
  return out;
}

Outputs terms(Builder& b, const std::vector<ValueId>& values) {
  Outputs out;
  for (ValueId v : values) out.push_back(Term(b, v));
  return out;
}

std::optional<bool> known_bool(const Context& c, Term condition) {
  const auto known = c.b.known(condition);
  if (!known || known->size() != 1) return std::nullopt;
  const auto value = sym::as_const(c.b.simplify((*known)[0]));
  return value ? std::optional(*value != 0) : std::nullopt;
}

constexpr const char* kBranches[] = {"else_branch", "then_branch"};

// Inlines the only branch that can run. A guard ends a run whose condition selects the other branch.
Outputs branch_alone(Context& c, sym::Expr condition, bool then_branch, const std::string& why) {
  const std::string options = fixing_options(c.b, condition);
  c.b.require(
      then_branch ? condition : sym::logical_not(condition),
      sym::escaped(cat("this run takes the ", kBranches[!then_branch], ", which is left out: ", why,
                       "; compile the model for sizes that it fits, by --dim or in the file",
                       options.empty() ? "" : cat(", or for the value of the input, as in ", options))));
  return c.importer().inline_graph(c.graph(kBranches[then_branch]), {});
}

std::string reason_of(const Diagnostic& problem) {
  return cat(problem.where.node, problem.where.node.empty() ? "" : ": ", problem.message);
}

Outputs op_if(Context& c) {
  const auto chosen = branches_of(c.importer()).take_choice();
  const Term given = reshape(c.in(0), {});
  if (auto known = known_bool(c, given)) return c.importer().inline_graph(c.graph(kBranches[*known]), {});
  if (!is_bool(given.dtype())) c.does_not_fit(cat("the condition is ", graph::to_string(c.b.type(given))));
  const sym::Expr condition = c.b.elements_of(given, "condition", 0, 1)[0];
  if (c.b.holds(condition)) return c.importer().inline_graph(c.graph("then_branch"), {});
  if (c.b.holds(sym::logical_not(condition))) return c.importer().inline_graph(c.graph("else_branch"), {});
  if (chosen) return branch_alone(c, condition, chosen->then_branch, chosen->reason);
  std::vector<graph::Region> regions;
  for (const bool first : {true, false}) {
    const auto problem = branches_of(c.importer()).try_region([&] {
      OpenRegion region(c.b, {}, first ? condition : sym::logical_not(condition));
      const Outputs results = c.importer().inline_graph(c.graph(kBranches[first]), {});
      regions.push_back(region.close(tensors(c, results, "a branch")));
    });
    if (problem) return branch_alone(c, condition, !first, reason_of(*problem));
  }
  const auto branch = [&](bool first) {
    return [&c, first] {
      return tensors(c, c.importer().inline_graph(c.graph(kBranches[first]), {}), "a branch");
    };
  };
  std::vector<std::optional<int64_t>> ranks;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) ranks.push_back(c.declared_rank(i));
  return terms(c.b, join_branches(c.b, condition, std::move(regions), branch(true), branch(false), ranks));
}

// Whether a loop body's condition is always true: passed through, or a constant.
bool always_true(const Graph& body) {
  std::string name = body.outputs.at(0).name;
  for (size_t steps = 0; steps <= body.nodes.size(); ++steps) {
    if (body.inputs.size() > 1 && name == body.inputs[1].name) return true;
    const auto is_true = [](const Tensor& t) { return t.bytes.size == 1 && t.bytes.data[0] != std::byte{0}; };
    for (const Tensor& t : body.initializers)
      if (t.name == name) return is_true(t);
    const auto producer = std::find_if(body.nodes.begin(), body.nodes.end(), [&](const Node& n) {
      return !n.outputs.empty() && n.outputs[0] == name;
    });
    if (producer == body.nodes.end()) return false;
    if (producer->op_type == "Constant") {
      const Attribute* value = producer->find("value");
      return value && !value->tensors.empty() && is_true(value->tensors[0]);
    }
    if (producer->op_type != "Identity" || producer->inputs.empty()) return false;
    name = producer->inputs.at(0);
  }
  return false;
}

constexpr int64_t kMaxUnrolled = 256;

// The empty scan output of a loop that carries sequences and has no iterations, with the shape that the body
// declares. Undeclared sizes are 0, as in onnxruntime.
Term no_rows(const Context& c, const ValueInfo& row) {
  if (row.type.kind != Type::Kind::kTensor || !row.type.shape)
    c.unsupported(
        cat("the loop runs no iteration, and the type of its scan output '", row.name, "' is not declared"),
        "declare the type of the body's output");
  Shape shape{0};
  for (const Dim& dim : *row.type.shape) shape.emplace_back(dim.value.value_or(0));
  return filled(c.b, shape, c.dtype(row.type.elem_type), 0);
}

// Unrolls a loop that carries sequences or tensors whose shape changes: one copy of the body per iteration.
Outputs unrolled(Context& c, const Graph& body, int64_t trips, Outputs carried) {
  std::vector<std::vector<Term>> scanned(body.outputs.size() - 1 - carried.size());
  for (int64_t i = 0; i < trips; ++i) {
    std::vector<Slot> arguments{Term(c.b, c.b.elements({i}, {})),
                                Term(c.b, c.b.elements({1}, {}, DType::kBool))};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    const Outputs results = c.importer().inline_graph(body, std::move(arguments));
    for (size_t k = 0; k < carried.size(); ++k) carried[k] = results[k + 1];
    for (size_t k = 0; k < scanned.size(); ++k) {
      const Slot& row = results[k + 1 + carried.size()];
      if (row.kind != Slot::Kind::kTensor) c.unsupported("a scan output of a loop is a sequence");
      scanned[k].push_back(unsqueeze(Term(c.b, row.tensor), {0}));
    }
  }
  const size_t first = body.outputs.size() - scanned.size();
  for (size_t k = 0; k < scanned.size(); ++k)
    carried.push_back(trips == 0 ? no_rows(c, body.outputs[first + k]) : concat(scanned[k], 0));
  return carried;
}

Outputs op_loop(Context& c) {
  const Graph& body = c.graph("body");
  const size_t carried_count = c.input_count() > 2 ? c.input_count() - 2 : 0;
  if (body.inputs.size() != carried_count + 2 || body.outputs.size() < carried_count + 1)
    c.does_not_fit(cat("the body takes ", body.inputs.size(), " and gives ", body.outputs.size(),
                       " values for ", carried_count, " carried ones"));
  sym::Expr trips = std::numeric_limits<int64_t>::max();
  if (c.has(0)) trips = c.b.simplify(sym::max(c.size_of(0, "trip_count", -kLargestSize, kLargestSize), 0));
  std::optional<ValueId> condition;
  const bool endless = always_true(body);
  if (c.has(1)) {
    const Term given = reshape(c.in(1), {});
    const auto known = known_bool(c, given);
    if (known && !*known) trips = 0;
    if (!known) condition = given.id();
  }
  if (!condition && !endless) condition = c.b.elements({1}, {}, DType::kBool);

  Outputs initial;
  bool sequences = false;
  for (size_t i = 0; i < carried_count; ++i) {
    initial.push_back(c.slot(i + 2));
    sequences |= initial.back().kind != Slot::Kind::kTensor;
  }
  const auto constant_trips = sym::as_const(trips);
  if (sequences) {
    if (!constant_trips || *constant_trips > kMaxUnrolled || (!endless && *constant_trips > 0))
      c.unsupported(
          "a loop that carries a sequence needs a number of iterations that is known at compile time");
    return unrolled(c, body, *constant_trips, std::move(initial));
  }
  const auto step = [&](const LoopState& state) {
    std::vector<Slot> arguments{Term(c.b, state.counter_value),
                                Term(c.b, c.b.elements({1}, {}, DType::kBool))};
    for (ValueId v : state.carried) arguments.push_back(Term(c.b, v));
    const std::vector<ValueId> results =
        tensors(c, c.importer().inline_graph(body, std::move(arguments)), "the body");
    LoopStep out{.condition = std::nullopt,
                 .carried = {results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(carried_count)},
                 .stacked = {results.begin() + 1 + static_cast<int64_t>(carried_count), results.end()}};
    if (condition) out.condition = reshape(Term(c.b, results[0]), {}).id();
    return out;
  };
  LoopResult result = loop(c.b, trips, condition, tensors(c, initial, "the loop"), step);
  result.carried.insert(result.carried.end(), result.stacked.begin(), result.stacked.end());
  return terms(c.b, result.carried);
}

// `states` precede the scanned inputs. One iteration per index of the scan axes.
Outputs scan(Context& c, const Graph& body, const std::vector<Term>& states,
             const std::vector<Term>& scanned) {
  const size_t outputs = body.outputs.size() - states.size();
  Dims input_axes = c.integers("scan_input_axes", Dims(scanned.size(), 0));
  const Dims input_directions =
      c.integers(c.version < 9 ? "directions" : "scan_input_directions", Dims(scanned.size(), 0));
  Dims output_axes = c.integers("scan_output_axes", Dims(outputs, 0));
  const Dims output_directions = c.integers("scan_output_directions", Dims(outputs, 0));
  if (scanned.empty() || input_axes.size() != scanned.size() || input_directions.size() != scanned.size() ||
      output_axes.size() != outputs || output_directions.size() != outputs)
    c.does_not_fit("the scan attributes do not fit the number of inputs or outputs");
  for (size_t i = 0; i < scanned.size(); ++i) input_axes[i] = c.axis(input_axes[i], scanned[i].rank());
  const sym::Expr trips = scanned[0].dim(input_axes[0]);
  for (size_t i = 1; i < scanned.size(); ++i)
    c.b.require(sym::eq(scanned[i].dim(input_axes[i]), trips), "scanned inputs have lengths {0} and {1}",
                {trips, scanned[i].dim(input_axes[i])});

  const auto step = [&](const LoopState& state) {
    std::vector<Slot> arguments;
    for (ValueId v : state.carried) arguments.push_back(Term(c.b, v));
    for (size_t i = 0; i < scanned.size(); ++i) {
      const sym::Expr at = input_directions[i] ? trips - 1 - state.counter : state.counter;
      arguments.push_back(squeeze(slice(scanned[i], input_axes[i], at, 1), {input_axes[i]}));
    }
    const std::vector<ValueId> results =
        tensors(c, c.importer().inline_graph(body, std::move(arguments)), "the body");
    const auto split = results.begin() + static_cast<int64_t>(states.size());
    return LoopStep{
        .condition = std::nullopt, .carried = {results.begin(), split}, .stacked = {split, results.end()}};
  };
  LoopResult result = loop(c.b, trips, std::nullopt, {states.begin(), states.end()}, step);
  Outputs out = terms(c.b, result.carried);
  for (size_t i = 0; i < outputs; ++i) {
    Term rows(c.b, result.stacked[i]);
    if (output_directions[i]) rows = flip(rows, {0});
    const int64_t axis = c.axis(output_axes[i], rows.rank());
    Dims order;
    for (int64_t d = 1; d < rows.rank(); ++d) order.push_back(d);
    order.insert(order.begin() + axis, 0);
    out.push_back(permute(rows, order));
  }
  return out;
}

Outputs op_scan(Context& c) {
  const Graph& body = c.graph("body");
  const auto scan_inputs = static_cast<size_t>(c.integer("num_scan_inputs"));
  const size_t first = c.version < 9 ? 1 : 0;  // version 8 has sequence lengths as first input
  if (scan_inputs + first > c.input_count() || body.inputs.size() != c.input_count() - first)
    c.does_not_fit("the body does not take the scan's inputs");
  const size_t state_count = c.input_count() - first - scan_inputs;
  if (body.outputs.size() < state_count) c.does_not_fit("the body does not give the scan's states");
  std::vector<Term> states, scanned;
  for (size_t i = 0; i < state_count; ++i) states.push_back(c.in(first + i));
  for (size_t i = 0; i < scan_inputs; ++i) scanned.push_back(c.in(first + state_count + i));
  if (c.version >= 9) return scan(c, body, states, scanned);

  // Version 8 scans each batch row separately.
  const auto batch = sym::as_const(scanned.at(0).dim(0));
  if (c.has(0) || !batch || *batch < 1 || *batch > 64)
    c.unsupported("Scan before version 9 needs a small constant batch and no sequence lengths");
  std::vector<std::vector<Term>> rows(body.outputs.size());
  for (int64_t i = 0; i < *batch; ++i) {
    const auto row = [&](const std::vector<Term>& of) {
      std::vector<Term> out;
      for (Term t : of) out.push_back(squeeze(slice(t, 0, i, 1), {0}));
      return out;
    };
    const Outputs results = scan(c, body, row(states), row(scanned));
    for (size_t k = 0; k < results.size(); ++k)
      rows[k].push_back(unsqueeze(Term(c.b, results[k].tensor), {0}));
  }
  Outputs out;
  for (const auto& r : rows) out.push_back(concat(r, 0));
  return out;
}

constexpr Row kRows[] = {
    {"If", op_if},
    {"Loop", op_loop},
    {"Scan", op_scan, 8},
};

}  // namespace

std::span<const Row> control_flow_rows() { return kRows; }

}  // namespace stridec::onnx
