#include "compiler/train/train.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/random.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/train/edit.h"
#include "compiler/train/learning_rate.h"
#include "compiler/train/lora.h"
#include "compiler/train/losses.h"
#include "compiler/train/narrow_states.h"
#include "compiler/train/update.h"

namespace stridec::train {
namespace {

using namespace ops;
using graph::Graph;
using graph::OpKind;
using graph::ValueId;

[[noreturn]] void refuse(const std::string& message, const std::string& help) {
  fail(ErrorKind::kUsage, "bad-train", cat("--train: ", message), help);
}

std::vector<ValueId> replaceable_values(const Graph& graph) {
  std::vector<ValueId> out;
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].replaceable) out.push_back(ValueId(static_cast<uint32_t>(i)));
  return out;
}

std::optional<ValueId> output_of(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.output_names, name);
  if (found == graph.output_names.end()) return std::nullopt;
  return graph.top.results[static_cast<size_t>(found - graph.output_names.begin())];
}

std::string list(const std::vector<std::string>& names) {
  return join(names, ", ", [](const std::string& name) { return cat("'", name, "'"); });
}

// Why no weight is trained.
std::string selects_none(const Plan& plan, const Settings& settings) {
  if (!plan.unreached.empty()) {
    constexpr size_t kShown = 6;
    std::vector<std::string> names = plan.unreached;
    if (names.size() > kShown) names.resize(kShown);
    return cat("the loss does not depend on the weights that are selected, ", list(names),
               names.size() < plan.unreached.size() ? " and others" : "");
  }
  if (settings.trainable.empty()) return "--lora selects none, and --trainable is not given";
  const bool all = settings.trainable == std::vector<std::string>{"*"};
  if (!settings.frozen.empty())
    return cat("--freeze ", list(settings.frozen), " leaves none",
               all ? "" : cat(" of those that --trainable ", list(settings.trainable), " names"));
  return all ? "the model has no weight of floats that can be trained"
             : cat("--trainable ", list(settings.trainable),
                   " names no weight of floats that can be trained");
}

// Every group has a weight: a misspelt pattern would go unnoticed.
void check_groups(const Plan& plan, const Settings& settings) {
  std::vector<std::string> names = plan.parameters;
  for (const std::string& name : plan.adapted)
    for (const char* suffix : {"", ".lora_A", ".lora_B"}) names.push_back(cat(name, suffix));
  for (const Group& group : settings.groups)
    if (std::ranges::none_of(names,
                             [&](const std::string& name) { return matches_any(group.patterns, name); }))
      refuse(cat("no weight that is trained matches group=", join(group.patterns, "|")),
             "'stridec inspect MODEL --stage=graph' lists weights by name");
}

// Whether a new input may have the name: so that a number or a list, meant as a value, is none.
bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<signed char>(c) < 0;
  };
  const auto inner = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '/';
  };
  return !text.empty() && letter(text.front()) && std::ranges::all_of(text, inner);
}

class GraphLossInputs final : public LossInputs {
 public:
  GraphLossInputs(graph::Builder& b, const Settings& settings) : b_(b), settings_(settings) {}

  graph::Builder& builder() override { return b_; }

  Term output(std::string_view setting) override {
    const std::string& name = text(setting);
    const auto value = output_of(b_.graph(), name);
    if (!value)
      refuse(cat("the model has no output '", name, "', which ", setting, " names"),
             cat("its outputs are ", list(b_.graph().output_names)));
    if (!is_float(b_.dtype(*value)))
      refuse(cat("output '", name, "' is ", graph::to_string(b_.type(*value))), "a loss is one of floats");
    return widen({b_, *value});
  }

  Term target(std::string_view setting, const graph::Type& type) override {
    const std::string& name = text(setting);
    const Graph& graph = b_.graph();
    const auto found = std::ranges::find(graph.input_names, name);
    if (found == graph.input_names.end()) {
      if (!is_name(name))
        refuse(cat(setting, "=", name, " names an input, and '", name,
                   "' is neither an input of the model nor a name for a new one"),
               cat("write ", setting,
                   "=NAME, and give the values of NAME in each step: ", graph::to_string(type)));
      return {b_, b_.input(name, type)};
    }
    const Term given(b_, graph.top.parameters[static_cast<size_t>(found - graph.input_names.begin())]);
    if (given.rank() != static_cast<int64_t>(type.shape.size()) ||
        is_float(given.dtype()) != is_float(type.dtype))
      refuse(cat("input '", name, "' is ", graph::to_string(b_.type(given)), ", and ", setting, " has to be ",
                 graph::to_string(type)),
             "name another input, or choose a new name");
    for (size_t d = 0; d < type.shape.size(); ++d)
      b_.require(sym::eq(given.shape()[d], type.shape[d]),
                 cat("dim ", d, " of '", name, "' is {0}, and the loss needs {1}"),
                 {given.shape()[d], type.shape[d]});
    return cast(given, type.dtype);
  }

  Term rows(std::string_view setting, DType dtype, sym::Expr count) override {
    const Graph& graph = b_.graph();
    const auto found = std::ranges::find(graph.input_names, text(setting));
    if (found == graph.input_names.end())
      return target(setting, {dtype, {count, sym::var(cat(text(setting), ".length"))}});
    const graph::Shape& given =
        b_.shape(graph.top.parameters[static_cast<size_t>(found - graph.input_names.begin())]);
    return target(setting, {dtype, {count, given.size() == 2 ? given[1] : sym::Expr(1)}});
  }

  double number(std::string_view setting) const override { return std::stod(text(setting)); }

  const std::string& text(std::string_view setting) const override {
    static const std::string none;
    if (const auto found = settings_.of_loss.find(std::string(setting)); found != settings_.of_loss.end())
      return found->second;
    const auto& all = find_loss(settings_.loss)->settings;
    const auto row = std::ranges::find(all, setting, &Setting::name);
    if (row == all.end() || row->standard == "none") return none;
    return standards_.emplace(row->name, row->standard).first->second;
  }

 private:
  graph::Builder& b_;
  const Settings& settings_;
  mutable std::map<std::string, std::string, std::less<>> standards_;
};

Term divided(LossSum sum) { return sum.total / select(equal(sum.weight, 0), 1, sum.weight); }

// The weights of the plan that have adapters.
std::vector<Adapted> find_planned(const Graph& graph, const Plan& plan, const Settings& settings) {
  if (plan.adapted.empty()) return {};
  std::vector<Adapted> all = find_adapted(graph, *settings.lora);
  std::erase_if(all, [&](const Adapted& each) { return std::ranges::count(plan.adapted, each.name) == 0; });
  return all;
}

std::vector<ValueId> ids_of(const std::vector<Weight>& weights) {
  std::vector<ValueId> ids;
  for (const Weight& weight : weights) ids.push_back(weight.value);
  return ids;
}

// Turns the weights of the plan into states, adds adapters, and turns the other replaceable weights into
// plain constants. The builder has added no node yet. `prefix` precedes the names of trained ones.
std::vector<Weight> make_states(graph::Builder& b, const Plan& plan, const Settings& settings,
                                const std::string& prefix) {
  Graph& graph = b.graph();
  std::map<ValueId, ValueId> to;
  std::map<std::string, ValueId> made;
  std::map<std::string, const uint8_t*> first;  // the bytes of the weight of this name
  std::vector<Weight> trained;
  for (ValueId id : replaceable_values(graph)) {
    const std::string name = graph[id].name;
    graph[id].replaceable = false;
    const bool is_trained = std::ranges::count(plan.parameters, name) > 0;
    if (!is_trained && std::ranges::count(plan.statistics, name) == 0) continue;
    if (const auto found = made.find(name); found != made.end()) {
      if (graph[found->second].type != graph[id].type || first[name] != graph[id].data->bytes)
        refuse(cat("two weights are named '", name, "'"), cat("leave them as they are: --freeze ", name));
      to[id] = found->second;  // the same weight, read twice
      continue;
    }
    first[name] = graph[id].data->bytes;
    const ValueId value = b.state(is_trained ? cat(prefix, name) : name, graph[id].type, graph[id].data);
    to[id] = made[name] = value;
    if (is_trained) trained.push_back({name, {b, value}});
  }
  redirect(graph, to);
  if (const auto adapted = find_planned(graph, plan, settings); !adapted.empty())
    for (const auto& [name, state] : add_adapters(graph, adapted, *settings.lora, prefix))
      trained.push_back({name, {b, state}});
  if (settings.states.empty()) return trained;
  const auto wide = read_widened(graph, narrow_states(graph, ids_of(trained)));
  for (Weight& weight : trained)
    if (const auto found = wide.find(weight.value.id()); found != wide.end())
      weight.wide = Term(b, found->second);
  return trained;
}

// The outputs of the model's form without gradients.
void replace_outputs(graph::Builder& b, const std::vector<std::pair<std::string, Term>>& outputs) {
  b.graph().top.results.clear();
  b.graph().output_names.clear();
  for (const auto& [name, value] : outputs) b.output(name, value);
}

LossSum build_loss(graph::Builder& b, const Settings& settings) {
  b.set_origin("the loss");
  GraphLossInputs inputs(b, settings);
  return find_loss(settings.loss)->build(inputs);
}

std::vector<Term> gradients_of(graph::Builder& b, Term loss, const std::vector<Weight>& weights,
                               const std::optional<LossScale>& scale) {
  std::vector<ValueId> xs;
  for (const Weight& weight : weights) xs.push_back(weight.read());
  std::vector<Term> out;
  for (ValueId gradient : gradients(b, scale ? scale->scaled(loss) : loss, xs)) {
    const Term wide = wide_enough({b, gradient});
    out.push_back(scale ? scale->unscaled(wide) : wide);
  }
  return out;
}

std::optional<LossScale> loss_scale(graph::Builder& b, const Plan& plan) {
  if (!plan.scales_loss) return std::nullopt;
  return std::optional<LossScale>(b);
}

std::vector<graph::NodeId> state_updates(const Graph& graph) {
  std::vector<graph::NodeId> out;
  for (graph::NodeId id : graph.top.nodes)
    if (graph[id].kind == OpKind::kUpdateState) out.push_back(id);
  return out;
}

// The states that the nodes update keep their values where `condition` is false. It comes later than the
// nodes, which move to the end.
void update_if(graph::Builder& b, Term condition, const std::vector<graph::NodeId>& updates) {
  Graph& graph = b.graph();
  for (graph::NodeId id : updates) {
    const Term old(b, graph[id].inputs[0]), now(b, graph[id].inputs[1]);
    graph[id].inputs[1] = select(condition, now, old);
    std::erase(graph.top.nodes, id);
    graph.top.nodes.push_back(id);
  }
}

constexpr char kGradNorm[] = "grad_norm";  // an output

Graph train_step(Graph model, const Plan& plan, const Settings& settings) {
  graph::Builder b(model, shape_table());
  const std::vector<Weight> weights = make_states(b, plan, settings, "");
  const std::vector<graph::NodeId> statistics = state_updates(model);
  advance_generator(b);
  const Term loss = divided(build_loss(b, settings));
  b.set_origin("the backward pass");
  std::optional<LossScale> scale = loss_scale(b, plan);
  std::vector<Term> slopes = gradients_of(b, loss, weights, scale);
  const Updated updated =
      update_parameters(b, settings, weights, std::move(slopes), scale ? &*scale : nullptr);
  if (updated.finite) update_if(b, *updated.finite, statistics);
  advance_generator(b);
  std::vector<std::pair<std::string, Term>> outputs = {{"loss", loss}};
  if (settings.grad_norm) outputs.emplace_back(kGradNorm, *updated.norm);
  replace_outputs(b, outputs);
  return model;
}

// Sums over batches, until `apply` uses and clears them.
Term gradient_state(graph::Builder& b, const Weight& weight) {
  return state(b, cat("gradient.", weight.name), {wide_enough(weight.value).dtype(), weight.value.shape()});
}
Term weight_state(graph::Builder& b, DType dtype) { return state(b, "gradient_weight", {dtype, {}}); }

Graph accumulate(Graph model, const Plan& plan, const Settings& settings) {
  graph::Builder b(model, shape_table());
  const std::vector<Weight> weights = make_states(b, plan, settings, "");
  advance_generator(b);
  const LossSum sum = build_loss(b, settings);
  b.set_origin("the backward pass");
  const std::vector<Term> slopes = gradients_of(b, sum.total, weights, loss_scale(b, plan));
  b.set_origin("the accumulation");
  for (size_t i = 0; i < weights.size(); ++i) {
    const Term old = gradient_state(b, weights[i]);
    update(b, old, old + slopes[i]);
  }
  const Term total = weight_state(b, DType::kF32);
  update(b, total, total + cast(sum.weight, DType::kF32));
  replace_outputs(b, {{"loss", divided(sum)}});
  return model;
}

Graph apply(const Graph& model, const Plan& plan, const Settings& settings) {
  Graph out;
  out.name = model.name;
  graph::Builder b(out, shape_table());
  b.set_origin("the accumulation");
  std::vector<Weight> weights;
  for (ValueId id : replaceable_values(model)) {
    const graph::Value& value = model[id];
    const auto same = [&](const Weight& weight) { return weight.name == value.name; };
    if (std::ranges::count(plan.parameters, value.name) == 0 || std::ranges::any_of(weights, same)) continue;
    weights.push_back({value.name, {b, b.state(value.name, value.type, value.data)}});
  }
  for (const Adapted& each : find_planned(model, plan, settings)) {
    auto [a, other] = adapter_states(b, each, *settings.lora, "");
    weights.push_back(std::move(a));
    weights.push_back(std::move(other));
  }
  if (!settings.states.empty()) narrow_states(out, ids_of(weights));
  const Term total = weight_state(b, DType::kF32);
  const Term divisor = select(equal(total, 0), 1, total);
  std::vector<Term> slopes;
  for (const Weight& weight : weights) {
    const Term sum = gradient_state(b, weight);
    slopes.push_back(sum / cast(divisor, sum.dtype()));
    update(b, sum, filled(b, sum.shape(), sum.dtype(), 0));
  }
  update(b, total, number_like(total, 0));
  std::optional<LossScale> scale = loss_scale(b, plan);
  const Updated updated =
      update_parameters(b, settings, weights, std::move(slopes), scale ? &*scale : nullptr);
  if (settings.grad_norm) b.output(kGradNorm, *updated.norm);
  advance_generator(b);
  return out;
}

Graph eval(Graph model, const Plan& plan, const Settings& settings) {
  graph::Builder b(model, shape_table());
  make_states(b, plan, settings, settings.ema > 0 ? "ema." : "");
  std::vector<std::pair<std::string, Term>> outputs = {{"loss", divided(build_loss(b, settings))}};
  for (size_t i = 0; i < model.output_names.size(); ++i)
    if (model.output_names[i] != "loss")
      outputs.push_back({model.output_names[i], {b, model.top.results[i]}});
  replace_outputs(b, outputs);
  return model;
}

Graph predict(Graph model, const Plan& plan, const Settings& settings) {
  graph::Builder b(model, shape_table());
  make_states(b, plan, settings, settings.ema > 0 ? "ema." : "");
  return model;
}

// The values that `value` is computed from, those that regions read included.
std::unordered_set<ValueId> sources_of(const Graph& graph, ValueId value) {
  std::unordered_set<ValueId> seen;
  std::vector<ValueId> open = {value};
  const std::function<void(const graph::Region&)> visit = [&](const graph::Region& region) {
    open.insert(open.end(), region.results.begin(), region.results.end());
    for (graph::NodeId id : region.nodes) {
      open.insert(open.end(), graph[id].inputs.begin(), graph[id].inputs.end());
      for (const graph::Region& inner : graph[id].regions) visit(inner);
    }
  };
  while (!open.empty()) {
    const ValueId at = open.back();
    open.pop_back();
    if (!seen.insert(at).second || !graph[at].producer.valid()) continue;
    const graph::Node& node = graph[graph[at].producer];
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    for (const graph::Region& region : node.regions) visit(region);
  }
  return seen;
}

// Whether a trained weight, or one with an adapter, is of this type.
bool trains_type(const Graph& model, const Plan& plan, DType dtype) {
  return std::ranges::any_of(model.values, [&](const graph::Value& value) {
    return value.data && value.type.dtype == dtype &&
           (std::ranges::count(plan.parameters, value.name) > 0 ||
            std::ranges::count(plan.adapted, value.name) > 0);
  });
}

// `with_loss`: the model's graph after the loss was built.
std::vector<AddedInput> added_inputs(const Graph& model, const Graph& with_loss, const Settings& settings) {
  std::vector<AddedInput> out;
  for (size_t i = model.input_names.size(); i < with_loss.input_names.size(); ++i) {
    AddedInput added{
        .name = with_loss.input_names[i], .type = with_loss[with_loss.top.parameters[i]].type, .setting = ""};
    for (const Setting& setting : find_loss(settings.loss)->settings)
      if (const auto given = settings.of_loss.find(std::string(setting.name));
          given != settings.of_loss.end() && given->second == added.name)
        added.setting = setting.name;
    out.push_back(std::move(added));
  }
  if (is_input(settings.learning_rate) && std::ranges::count(with_loss.input_names, "lr") == 0)
    out.push_back({.name = "lr", .type = {DType::kF32, {}}, .setting = "lr"});
  return out;
}

}  // namespace

Plan make_plan(const Graph& model, const Settings& settings) {
  Plan plan;
  Graph copy = model;
  graph::Builder b(copy, shape_table());
  const std::unordered_set<ValueId> reached = sources_of(copy, build_loss(b, settings).total);
  for (const graph::Node& node : model.nodes) {
    if (node.kind != OpKind::kUpdateState || !model[node.inputs[0]].replaceable) continue;
    const std::string& name = model[node.inputs[0]].name;
    if (std::ranges::count(plan.statistics, name) > 0)
      refuse(cat("two nodes update '", name, "' in one step"), cat("leave it as it is: --freeze ", name));
    plan.statistics.push_back(name);
  }
  for (ValueId id : replaceable_values(model)) {
    const std::string& name = model[id].name;
    std::vector<std::string>& list = reached.contains(id) ? plan.parameters : plan.unreached;
    if (is_float(model[id].type.dtype) && std::ranges::count(plan.statistics, name) == 0 &&
        std::ranges::count(list, name) == 0)
      list.push_back(name);
  }
  std::erase_if(plan.unreached,
                [&](const std::string& name) { return std::ranges::count(plan.parameters, name) > 0; });
  if (settings.lora)
    for (const Adapted& each : find_adapted(model, *settings.lora)) {
      if (std::ranges::count(plan.parameters, each.name) > 0)
        refuse(cat("weight '", each.name, "' is trained and has an adapter"),
               cat("leave it as it is: --freeze ", each.name, "; or leave it out of --lora"));
      (reached.contains(each.weight) ? plan.adapted : plan.unreached).push_back(each.name);
    }
  plan.scales_loss = settings.loss_scale == "dynamic" ||
                     (settings.loss_scale.empty() && trains_type(model, plan, DType::kF16));
  if (plan.parameters.empty() && plan.adapted.empty())
    refuse(cat("no weight is trained: ", selects_none(plan, settings)),
           "'stridec inspect MODEL --stage=graph' lists weights by name");
  check_groups(plan, settings);
  return plan;
}

Report check_training(const Graph& model, const Settings& settings) {
  Report report;
  try {
    report.plan = make_plan(model, settings);
    report.planned = true;
  } catch (const Error& error) {
    report.problems.push_back(error.diagnostic);
    return report;
  }
  Graph copy = model;
  graph::Builder b(copy, shape_table());
  const Term loss = divided(build_loss(b, settings));
  report.inputs = added_inputs(model, copy, settings);
  std::vector<ValueId> xs;
  for (ValueId id : replaceable_values(copy)) {
    if (std::ranges::count(report.plan.parameters, copy[id].name) == 0) continue;
    xs.push_back(id);
    report.elements += sym::as_const(count(copy[id].type.shape)).value_or(0);
  }
  for (const Adapted& each : find_planned(copy, report.plan, settings)) {
    xs.push_back(each.matrix);
    for (const graph::Type& type : {each.a, each.b})
      report.elements += sym::as_const(count(type.shape)).value_or(0);
  }
  report.problems = missing_gradients(copy, loss, xs).operators;
  report.random_nodes =
      std::ranges::count(model.nodes, OpKind::kRandomUniform, [](const graph::Node& n) { return n.kind; });
  return report;
}

bool is_training_state(std::string_view name) {
  return name == kGenerator || name == "gradient_weight" ||
         std::ranges::any_of(
             std::initializer_list<std::string_view>{"optimizer.", "gradient.", "ema.", "loss_scale"},
             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string average_name(std::string_view weight) { return cat("ema.", weight); }

bool uses_training_form(std::string_view function) {
  return function == "train_step" || function == "accumulate";
}

Graph make_function(Graph model, std::string_view function, const Plan& plan, const Settings& settings) {
  if (function == "train_step") return train_step(std::move(model), plan, settings);
  if (function == "accumulate") return accumulate(std::move(model), plan, settings);
  if (function == "apply") return apply(model, plan, settings);
  if (function == "eval") return eval(std::move(model), plan, settings);
  return predict(std::move(model), plan, settings);
}

}  // namespace stridec::train
