#include "compiler/package/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/base/text.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/library.h"
#include "compiler/loop/module_values.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/package/version.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/text.h"

namespace stridec::package {
namespace {

using Json = nlohmann::ordered_json;

using loop::Program;

// A number, or the text of an expression.
Json json_of(sym::Expr e) {
  const auto constant = sym::as_const(e);
  return constant ? Json(*constant) : Json(sym::to_string(e));
}

Json shape_of(const loop::Buffer& buffer) {
  Json shape = Json::array();
  for (sym::Expr dim : buffer.shape) shape.push_back(json_of(dim));
  return shape;
}

Json values_of(const Program& program, const std::vector<loop::BufferId>& ids) {
  Json values = Json::array();
  for (loop::BufferId id : ids) {
    values.push_back(
        {{"name", program[id].name}, {"dtype", name(program[id].dtype)}, {"shape", shape_of(program[id])}});
    if (const auto order = schedule::declared_order(program[id]); !order.empty())
      values.back()["memory_order"] = order;
  }
  return values;
}

Json inputs_of(const Program& program, const std::vector<loop::ValueRange>& ranges) {
  Json inputs = values_of(program, program.inputs);
  for (size_t i = 0; i < std::min(ranges.size(), program.inputs.size()); ++i) {
    const loop::ValueRange& range = ranges[i];
    if (range.image) inputs[i]["content"] = "image";
    if (range.least) inputs[i]["range"]["minimum"] = json_of(*range.least);
    if (range.most) inputs[i]["range"]["maximum"] = json_of(*range.most);
  }
  return inputs;
}

// Symbols to list: all that inputs or the context determine. Of those bound during the run, only symbols
// that a listed size uses; loop counters and checks are omitted.
std::set<sym::Expr, sym::ExprLess> symbols_told(const Program& program) {
  std::set<sym::Expr, sym::ExprLess> told;
  const auto tell = [&](sym::Expr e) {
    for (sym::Expr var : sym::free_vars(e)) told.insert(var);
  };
  for (const auto* values : {&program.inputs, &program.outputs, &program.states})
    for (loop::BufferId id : *values)
      for (sym::Expr dim : program[id].shape) tell(dim);
  for (const auto& guard : program.guards) tell(guard.condition);
  tell(program.arena_bytes);
  for (const auto& symbol : program.symbols)
    if (loop::is_bound_before_run(program, symbol)) told.insert(symbol.var);
  return told;
}

Json symbols_of(const Program& program) {
  Json symbols = Json::array();
  const auto told = symbols_told(program);
  for (const auto& symbol : program.symbols) {
    if (!told.contains(symbol.var)) continue;
    const auto range = program.facts.bounds(symbol.var);
    Json entry = {{"name", symbol.var.name()}, {"minimum", range.has_lo() ? range.lo : 0}};
    if (range.has_hi()) entry["maximum"] = range.hi;
    entry["multiple"] = std::max<int64_t>(1, program.facts.known_divisor(symbol.var));
    if (symbol.input >= 0)
      entry["from"] = {{"input", program[program.inputs[symbol.input]].name}, {"dim", symbol.dim}};
    else
      entry["from"] = loop::is_context_size(program, symbol.var) ? "context" : "data";
    if (loop::is_context_size(program, symbol.var)) entry["of_context"] = true;
    symbols.push_back(std::move(entry));
  }
  return symbols;
}

// One entry for all launches with the same name, schedule and cost. Steps are numbered as in the runtime's
// profile.
Json measured_of(const loop::Kernel& kernel, const TuningFacts& tuning) {
  const auto tuned = tuning.measured.find(kernel.nests[0]);
  if (tuned == tuning.measured.end()) return nullptr;
  return {{"shape", tuned->second.shape},
          {"microseconds", tuned->second.microseconds},
          {"default_microseconds", tuned->second.default_microseconds},
          {"schedules_tried", tuned->second.tried}};
}

// For each launch of the row, its nodes as indices into the row's.
Json launch_nodes(const loop::KernelRow& row) {
  std::map<std::string_view, size_t> place;
  for (size_t i = 0; i < row.nodes.size(); ++i) place[row.nodes[i]] = i;
  Json launches = Json::array();
  for (const loop::Kernel* kernel : row.launches) {
    launches.push_back(Json::array());
    for (const std::string& node : kernel->nodes) launches.back().push_back(place.at(node));
  }
  return launches;
}

Json kernels_of(const Program& program, const TuningFacts& tuning, int& steps) {
  Json kernels = Json::array();
  const std::vector<loop::Kernel> all = loop::kernels_of(program, steps);
  const auto measured = [&](const loop::Kernel& kernel) { return measured_of(kernel, tuning).dump(); };
  for (const loop::KernelRow& row : loop::rows_of(program, all, measured)) {
    Json entry = {{"name", row.first().name},
                  {"launches", row.launches.size()},
                  {"steps", Json::array()},
                  {"schedule", row.first().schedule},
                  {"flops", sym::to_string(row.cost.flops)},
                  {"bytes", sym::to_string(row.cost.bytes_read + row.cost.bytes_written)},
                  {"nodes", row.nodes}};
    for (const loop::Kernel* kernel : row.launches) entry["steps"].push_back(kernel->step);
    if (row.launches.size() > 1) entry["launch_nodes"] = launch_nodes(row);
    if (Json times = measured_of(row.first(), tuning); !times.is_null()) entry["measured"] = std::move(times);
    kernels.push_back(std::move(entry));
  }
  return kernels;
}

// Kernels of the user's operators, which are not kernels of the compiler's.
Json user_routines(const Program& program) {
  Json routines = Json::array();
  for (const loop::Routine& each : loop::routines_of(program)) {
    const auto kernel = loop::find_user_kernel(each.call->routine);
    if (!kernel) continue;
    const loop::UserArguments at(*kernel);
    const auto last = [&](loop::UserArguments::Last which) {
      return sym::to_string(each.call->arguments[at.last(which)]);
    };
    routines.push_back({{"name", kernel->name},
                        {"step", each.step},
                        {"flops", last(loop::UserArguments::kFlops)},
                        {"bytes", last(loop::UserArguments::kBytes)},
                        {"nodes", each.call->nodes}});
    if (kernel->callback) routines.back()["callback"] = true;
  }
  return routines;
}

// Parts of the library that NOTICE has sections for, in addition to kernels made for the model.
Json parts_of(const ManifestFacts& facts) {
  std::set<std::string> parts = {"runtime"};
  if (!facts.gpu_variants.empty()) parts.insert("cuda");
  for (const FunctionFacts& function : facts.functions)
    loop::for_each_step(function.program->steps, [&](const loop::Step& step) {
      const auto* call = std::get_if<loop::Call>(&step.node);
      const loop::LibraryRoutine* routine = call ? loop::find_routine(call->routine) : nullptr;
      if (routine && !routine->part.empty()) parts.emplace(routine->part);
    });
  return parts;
}

Json model_of(const FunctionFacts& function) {
  return {{"file", function.model_file}, {"sha256", function.model_sha256}};
}

Json guards_of(const Program& program) {
  Json guards = Json::array();
  for (const auto& guard : program.guards)
    guards.push_back({{"condition", sym::to_string(guard.condition)}, {"sentence", sym::render(guard)}});
  return guards;
}

// Nodes without a kernel, those of equal fate together, in the order of their first nodes. Kernels have the
// others.
Json nodes_of(const std::vector<NodeFate>& nodes) {
  Json rows = Json::array();
  std::map<std::string, size_t> known;
  int count = 0;
  for (const NodeFate& node : nodes) {
    count += node.count;
    if (node.kind == NodeFate::Kind::kKernel) continue;
    Json row = {{"fate", name(node.kind)}, {"by", node.by}};
    if (!node.with.empty()) row["with"] = node.with;
    if (!node.steps.empty()) row["steps"] = node.steps;
    const auto [found, fresh] =
        known.emplace(row.dump(-1, ' ', false, Json::error_handler_t::replace), rows.size());
    if (fresh) rows.push_back(std::move(row));
    rows[found->second]["nodes"].push_back(node.node);
  }
  return {{"count", count}, {"without_kernel", std::move(rows)}};
}

Json extensions_of(const ExtensionFacts& facts) {
  Json rules = Json::array(), passes = Json::array();
  for (const ExtensionFacts::RuleFile& file : facts.rules) {
    Json each = Json::array();
    for (const ExtensionFacts::Rule& rule : file.rules) {
      each.push_back({{"name", rule.name}, {"check", rule.check}, {"fired", rule.fired}});
      if (!rule.reason.empty()) each.back()["reason"] = rule.reason;
    }
    rules.push_back({{"file", file.file},
                     {"name", file.name},
                     {"version", file.version},
                     {"sha256", file.sha256},
                     {"rules", std::move(each)}});
  }
  for (const ExtensionFacts::Pass& pass : facts.passes)
    passes.push_back(
        {{"after", pass.after}, {"kind", pass.kind}, {"command", pass.command}, {"sha256", pass.sha256}});
  Json out = {{"rules", std::move(rules)}, {"passes", std::move(passes)}};
  for (const ExtensionFacts::OperatorFile& file : facts.operators)
    out["operators"].push_back({{"file", file.file},
                                {"name", file.name},
                                {"version", file.version},
                                {"sha256", file.sha256},
                                {"operators", file.operators}});
  for (const ExtensionFacts::KernelFile& file : facts.kernels) {
    Json each = Json::array();
    for (const auto& [name, chosen] : file.kernels) each.push_back({{"name", name}, {"chosen", chosen}});
    out["kernels"].push_back(
        {{"file", file.file}, {"name", file.name}, {"sha256", file.sha256}, {"kernels", std::move(each)}});
  }
  return out;
}

// What a memory budget changed.
Json recomputation_of(const schedule::RecomputePlan& plan) {
  Json tensors = Json::array();
  for (const schedule::Recomputed& each : plan.recomputed)
    tensors.push_back({{"tensor", each.tensor},
                       {"nodes", each.nodes},
                       {"before", each.before},
                       {"bytes", each.bytes},
                       {"flops", each.flops}});
  return {{"bytes", plan.arena},
          {"keeping_all_bytes", plan.keeping_all},
          {"least_bytes", plan.least},
          {"tensors", std::move(tensors)}};
}

// Adds kernels, nodes, specializations, and to the memory what is computed again.
void add_kernels(Json& json, const FunctionFacts& function) {
  int steps = 0;  // of the runtime's profile; the general program's come first
  json["kernels"] = kernels_of(*function.program, function.tuning, steps);
  if (Json routines = user_routines(*function.program); !routines.empty())
    json["routines"] = std::move(routines);
  json["nodes"] = nodes_of(function.nodes);
  if (function.recomputation) json["memory"]["recomputation"] = recomputation_of(*function.recomputation);
  for (const auto& [rule, nodes] : function.rewritten)
    json["nodes"]["rewritten_by_rules"].push_back({{"rule", rule}, {"nodes", nodes}});
  for (const auto& [when, special] : function.specializations)
    json["specializations"].push_back({{"when", sym::to_string(when)},
                                       {"workspace_bytes", sym::to_string(special->arena_bytes)},
                                       {"kernels", kernels_of(*special, {}, steps)}});
}

void add_tuning(Json& json, const FunctionFacts& function) {
  if (function.tuning.entries)
    json["tuning"] = {{"entries", function.tuning.entries}, {"sha256", function.tuning.sha256}};
}

// The names of the parameters that the function has.
Json parameter_names(const Program& program) {
  Json names = Json::array();
  for (loop::BufferId id : program.parameters) names.push_back(program[id].name);
  return names;
}

Json function_of(const FunctionFacts& function) {
  const Program& program = *function.program;
  Json json = {{"name", program.name},
               {"model", model_of(function)},
               {"dims", function.dims},
               {"inputs", inputs_of(program, function.input_ranges)},
               {"outputs", values_of(program, program.outputs)},
               {"states", values_of(program, program.states)},
               {"symbols", symbols_of(program)},
               {"guards", guards_of(program)},
               {"memory", {{"workspace_bytes", sym::to_string(program.arena_bytes)}}}};
  add_kernels(json, function);
  if (!program.parameters.empty()) json["parameters"] = parameter_names(program);
  if (!function.method.empty()) json["method"] = function.method;
  if (!function.shapes.empty()) json["shapes"] = function.shapes;
  if (!function.input_values.empty()) json["input_values"] = function.input_values;
  add_tuning(json, function);
  return json;
}

// The states of all functions.
Json states_of(const ManifestFacts& facts) {
  std::vector<const Program*> programs;
  for (const FunctionFacts& function : facts.functions) programs.push_back(function.program);
  Json states = Json::array();
  for (const auto& state : loop::module_states(programs).all)
    states.push_back(values_of(*state.program, {state.buffer}).front());
  return states;
}

const Program& declared_of(const FunctionFacts& function) {
  return function.declared ? *function.declared : *function.program;
}

// The parameters of all functions, with the types that the models have, and where the weights section holds
// their bytes.
Json parameters_of(const ManifestFacts& facts) {
  std::vector<const Program*> programs;
  for (const FunctionFacts& function : facts.functions) programs.push_back(&declared_of(function));
  Json parameters = Json::array();
  for (const auto& [declared, place, id] : loop::module_parameters(programs).all) {
    const auto function = std::find(programs.begin(), programs.end(), declared) - programs.begin();
    const Program& placed = *facts.functions[static_cast<size_t>(function)].program;
    const loop::Buffer& buffer = placed[placed.parameters[place]];
    Json parameter = values_of(*declared, {id}).front();
    parameter["offset"] = buffer.offset.value();
    parameter["bytes"] = buffer.weight.size;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace

std::string_view name(NodeFate::Kind kind) {
  switch (kind) {
    case NodeFate::Kind::kKernel: return "kernel";
    case NodeFate::Kind::kRoutine: return "routine";
    case NodeFate::Kind::kControl: return "control";
    case NodeFate::Kind::kConstant: return "constant";
    case NodeFate::Kind::kView: return "view";
    case NodeFate::Kind::kSize: return "size";
    case NodeFate::Kind::kRewritten: return "rewritten";
    case NodeFate::Kind::kDead: return "dead";
  }
  return "";
}

std::string manifest(const ManifestFacts& facts) {
  const FunctionFacts& first = facts.functions.front();
  const Program& program = *first.program;
  Json targets = Json::array(),
       required = {{"libraries", Json::array({"libc.so.6"})}, {"glibc", facts.glibc}};
  if (!facts.gpu_variants.empty()) {
    targets.push_back({{"device", "cuda"}, {"architecture", "nvidia"}, {"variants", facts.gpu_variants}});
    required["driver"] = facts.driver;
  }
  if (!facts.variants.empty())
    targets.push_back({{"device", "cpu"}, {"architecture", "x86_64"}, {"variants", facts.variants}});
  Json json = {
      {"schema_version", kManifestVersion},
      {"compiler", "stridec " STRIDEC_VERSION},
      {"name", program.name},
      {"model", model_of(first)},
      {"mode", facts.mode},
      {"options", facts.settings},
      {"dims", first.dims},
      {"inputs", inputs_of(program, first.input_ranges)},
      {"outputs", values_of(program, program.outputs)},
      {"states", states_of(facts)},
      {"symbols", symbols_of(program)},
      {"guards", guards_of(program)},
      {"memory",
       {{"weights_bytes", program.weight_bytes},
        {"weights_file", facts.weights_file.empty() ? Json(nullptr) : Json(facts.weights_file)},
        {"workspace_bytes", sym::to_string(program.arena_bytes)}}},
      {"targets", std::move(targets)},
      {"requires", std::move(required)},
      {"contains", parts_of(facts)},
  };
  add_kernels(json, first);
  if (Json parameters = parameters_of(facts); !parameters.empty()) json["parameters"] = std::move(parameters);
  if (!first.method.empty()) json["method"] = first.method;
  if (!first.shapes.empty()) json["shapes"] = first.shapes;
  if (!first.input_values.empty()) json["input_values"] = first.input_values;
  if (!facts.metadata.empty()) json["metadata"] = facts.metadata;
  if (!facts.extensions.rules.empty() || !facts.extensions.passes.empty() ||
      !facts.extensions.operators.empty() || !facts.extensions.kernels.empty())
    json["extensions"] = extensions_of(facts.extensions);
  add_tuning(json, first);
  if (facts.functions.size() > 1)
    for (const FunctionFacts& function : facts.functions) json["functions"].push_back(function_of(function));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace stridec::package
