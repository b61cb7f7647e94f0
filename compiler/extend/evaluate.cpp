#include "compiler/extend/evaluate.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

namespace stridec::extend {
namespace {

using graph::OpKind;
using graph::ValueId;

struct Call {
  std::string_view name;
  size_t args;
};
constexpr Call kCalls[] = {
    {"rank", 1},   {"dim", 2},    {"dtype", 1}, {"size", 1},      {"uses", 1},   {"value", 1},
    {"at", 2},     {"len", 1},    {"outer", 1}, {"inner", 1},     {"all", 1},    {"is_power_of_two", 1},
    {"normal", 1}, {"finite", 1}, {"same", 2},  {"whole_but", 4}, {"min", 2},    {"max", 2},
    {"==", 2},     {"!=", 2},     {"<", 2},     {"<=", 2},        {">", 2},      {">=", 2},
    {"and", 2},    {"or", 2},     {"not", 1},   {"in", 2},        {"+", 2},      {"-", 2},
    {"*", 2},      {"/", 2},      {"%", 2},     {"neg", 1},       {"append", 2}, {"shape", 1}};

// Of a comparison between tensors; `>` and `>=` are `<` and `<=` of swapped operands.
std::optional<OpKind> comparison_kind(std::string_view name) {
  if (name == "==") return OpKind::kEq;
  if (name == "!=") return OpKind::kNe;
  if (name == "<" || name == ">") return OpKind::kLt;
  if (name == "<=" || name == ">=") return OpKind::kLe;
  return std::nullopt;
}

bool is_reduction(OpKind kind) { return kind >= OpKind::kReduceSum && kind <= OpKind::kReduceOr; }

}  // namespace

void does_not_fit(const std::string& what) { fail(ErrorKind::kDoesNotFit, "does-not-fit", what); }

std::optional<OpKind> infix_kind(std::string_view name) {
  if (name == "+") return OpKind::kAdd;
  if (name == "-") return OpKind::kSub;
  if (name == "*") return OpKind::kMul;
  if (name == "/") return OpKind::kDiv;
  if (name == "neg") return OpKind::kNeg;
  return std::nullopt;
}

bool is_comparison(std::string_view name) { return comparison_kind(name).has_value(); }

bool is_number_function(std::string_view name) {
  static constexpr std::string_view kNames[] = {"rank", "dim", "size", "len", "at", "value"};
  return std::ranges::count(kNames, name) > 0;
}

bool is_measure(std::string_view name) { return name == "cost" || name == "flops" || name == "bytes"; }

std::string extents_of(const std::string& name) { return name + "@shape"; }

std::string problem_of_call(const Term& call) {
  const auto known = std::ranges::find(kCalls, call.name, &Call::name);
  if (known == std::end(kCalls))
    return cat("'", call.name, "' is not a function of conditions and attributes");
  if (known->args != call.args.size() || !call.attributes.empty())
    return cat("'", call.name, "' takes ", known->args, known->args == 1 ? " argument" : " arguments");
  return "";
}

std::vector<ValueId> Evaluator::side(const Side& side) {
  side_ = &side;
  std::vector<ValueId> results;
  for (const Definition& each : side.results) {
    std::vector<ValueId> values;
    if (each.names.size() > 1)
      values = call(each.term, each.names.size());
    else if (each.names.size() == 1 && bindings_.values.contains(each.names[0]))
      values = {bindings_.values.at(each.names[0])};
    else
      values = {tensor(each.term)};
    if (values.size() < std::max<size_t>(each.names.size(), 1))
      does_not_fit(cat("'", to_string(each.term), "' has ", values.size(), " results"));
    for (size_t i = 0; i < each.names.size(); ++i) bindings_.values.emplace(each.names[i], values[i]);
    values.resize(std::max<size_t>(each.names.size(), 1));
    results.insert(results.end(), values.begin(), values.end());
  }
  return results;
}

namespace {

constexpr int64_t kMostFoldedBytes = 1 << 20;

bool is_small_constant(const graph::Graph& graph, ValueId id) {
  const graph::Data* data = graph[id].known_data();
  return data && data->size <= static_cast<size_t>(kMostFoldedBytes);
}

bool has_small_type(const graph::Type& type) {
  int64_t bytes = byte_size(type.dtype);
  for (const sym::Expr dim : type.shape) {
    if (!dim.is_const()) return false;
    bytes *= std::max<int64_t>(dim.value(), 1);
    if (bytes > kMostFoldedBytes) return false;
  }
  return true;
}

}  // namespace

// The value as a constant, if it is computed from small constants.
ValueId Evaluator::folded(ValueId value) {
  const graph::Graph& graph = b_.graph();
  const graph::NodeId producer = graph[value].producer;
  if (!folds || !producer.valid() || graph[producer].kind == OpKind::kConstant) return value;
  const graph::Node& node = graph[producer];
  const bool constant =
      !node.inputs.empty() && node.outputs.size() == 1 && has_small_type(graph[value].type) &&
      std::ranges::all_of(node.inputs, [&](ValueId in) { return is_small_constant(graph, in); });
  if (!constant) return value;
  graph::Graph part;
  graph::Builder builder(part, ops::shape_table());
  std::vector<ValueId> inputs;
  for (const ValueId input : node.inputs)
    inputs.push_back(builder.constant("", b_.type(input), *graph[input].data));
  builder.output("y", builder.add1(node.kind, inputs, node.attributes));
  return b_.constant("", b_.type(value), graph::own(loop::interpret(ops::lower(part), {}).at(0).bytes));
}

ValueId Evaluator::tensor(const Term& term) {
  if (term.kind == Term::Kind::kName) {
    if (const auto bound = bindings_.values.find(term.name); bound != bindings_.values.end())
      return bound->second;
    for (const auto* list : {&side_->locals, &side_->results})
      for (const Definition& each : *list)
        for (size_t i = 0; i < each.names.size(); ++i)
          if (each.names[i] == term.name) {
            const ValueId value =
                each.names.size() > 1 ? call(each.term, each.names.size()).at(i) : tensor(each.term);
            bindings_.values.emplace(term.name, value);
            return value;
          }
    does_not_fit(cat("'", term.name, "' has no value"));
  }
  if (term.kind == Term::Kind::kNumber) does_not_fit("a number alone has no type; write full_like(x, 0)");
  if (infix_kind(term.name) || is_comparison(term.name)) return infix(term);
  const std::vector<ValueId> outputs = call(term, static_cast<size_t>(std::max(term.output, 0)) + 1);
  if (term.output < 0 || static_cast<size_t>(term.output) >= outputs.size())
    does_not_fit(cat("'", term.name, "' has no result ", term.output));
  return folded(outputs[static_cast<size_t>(term.output)]);
}

// A number takes the dtype of the other operands; `select`: of those after the first.
std::vector<ValueId> Evaluator::operands(const std::vector<const Term*>& terms, bool select) {
  std::vector<ValueId> values(terms.size());
  std::optional<DType> dtype;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (is_number(*terms[i])) continue;
    values[i] = tensor(*terms[i]);
    if (!dtype && !(select && i == 0)) dtype = b_.dtype(values[i]);
  }
  if (!dtype) does_not_fit("an operation on numbers alone has no type");
  for (size_t i = 0; i < terms.size(); ++i)
    if (is_number(*terms[i])) values[i] = number(*terms[i], *dtype);
  return values;
}

// Whether the term is computed from numbers, attributes and dims alone.
bool Evaluator::is_number(const Term& term) const {
  if (term.kind == Term::Kind::kNumber) return true;
  if (term.kind == Term::Kind::kName)
    return !bindings_.values.contains(term.name) && bindings_.attributes.contains(term.name);
  if (term.kind != Term::Kind::kCall) return false;
  if (is_number_function(term.name)) return true;
  if (!infix_kind(term.name) && !graph::parse_op(term.name)) return false;
  return !term.args.empty() && term.attributes.empty() &&
         std::ranges::all_of(term.args, [&](const Term& arg) { return is_number(arg); });
}

// Such a term in the arithmetic of the dtype: 1 / d is not an integer among floats.
ValueId Evaluator::number(const Term& term, DType dtype) {
  const auto literal = [&](double value) {
    if (!is_float(dtype) && value != std::trunc(value))
      does_not_fit(cat(value, " is not a value of ", stridec::name(dtype)));
    return b_.scalar(dtype, value);
  };
  if (term.kind == Term::Kind::kNumber) return literal(term.number);
  if (term.kind == Term::Kind::kCall && !is_number_function(term.name)) {
    std::vector<ValueId> args;
    for (const Term& arg : term.args) args.push_back(number(arg, dtype));
    const auto kind = infix_kind(term.name) ? infix_kind(term.name) : graph::parse_op(term.name);
    return folded(b_.add1(*kind, args));
  }
  const Attr value = attribute(term);
  if (const auto* d = std::get_if<double>(&value)) return literal(*d);
  if (const auto* e = std::get_if<sym::Expr>(&value))
    return !e->is_const()    ? ops::size_as(b_, dtype, *e).id()
           : is_float(dtype) ? literal(static_cast<double>(e->value()))
                             : b_.elements({*e}, {}, dtype);
  does_not_fit(cat("'", to_string(term), "' is ", extend::to_string(value), ", not a number"));
}

ValueId Evaluator::infix(const Term& term) {
  std::vector<const Term*> args;
  for (const Term& arg : term.args) args.push_back(&arg);
  if (is_comparison(term.name)) {
    if (term.name[0] == '>') std::swap(args[0], args[1]);
    return folded(b_.add1(*comparison_kind(term.name), operands(args, false)));
  }
  return folded(b_.add1(*infix_kind(term.name), operands(args, false)));
}

Attr Evaluator::argument(const Term& term, const std::function<Attr()>& drawn) {
  if (term.kind == Term::Kind::kName && drawn && !bindings_.attributes.contains(term.name) &&
      !is_tensor(term) && !is_word(term.name)) {
    Attr value = drawn();
    bindings_.attributes.emplace(term.name, value);
    return value;
  }
  if (term.kind == Term::Kind::kList && drawn && std::ranges::any_of(term.args, [&](const Term& arg) {
        return arg.kind == Term::Kind::kName && !bindings_.attributes.contains(arg.name);
      }))
    draw_elements(term, drawn());
  return attribute(term);
}

void Evaluator::draw_elements(const Term& names, const Attr& drawn) {
  const auto* list = std::get_if<std::vector<sym::Expr>>(&drawn);
  if (!list || list->size() != names.args.size())
    does_not_fit(cat("'", to_string(names), "' has another number of elements than the attribute"));
  for (size_t i = 0; i < list->size(); ++i)
    if (names.args[i].kind == Term::Kind::kName) bindings_.attributes.emplace(names.args[i].name, (*list)[i]);
}

std::vector<ValueId> Evaluator::call(const Term& term, size_t results) {
  const Split parts = split(term);
  const std::vector<ValueId> inputs = operands(parts.tensors, term.name == "select");
  const int rank = inputs.empty() ? 0 : b_.rank(inputs[0]);
  if (const Composite* composite = find_composite(term.name)) {
    Arguments arguments;
    for (const auto& [name, value] : parts.attributes) {
      const std::string parameter = name;
      const auto drawn = [&] { return draw_parameter(term.name, parameter, rank); };
      if (value->kind == Term::Kind::kName && (value->name == "erf" || value->name == "tanh") &&
          name == "form")
        arguments[name] = value->name;
      else
        arguments[name] = argument(*value, draw_parameter ? std::function<Attr()>(drawn) : nullptr);
    }
    return {composite->build(b_, inputs, arguments)};
  }
  const auto kind = graph::parse_op(term.name);
  if (!kind && operators) return own_operator(term, inputs, results);
  if (!kind) does_not_fit(cat("there is no operator '", term.name, "'"));
  std::vector<DType> dtypes;
  for (const ValueId input : inputs) dtypes.push_back(b_.dtype(input));
  graph::Attributes attributes = defaults(*kind, dtypes);
  bool keep = false;
  for (const auto& [name, value] : parts.attributes) {
    if (is_reduction(*kind) && name == "keep") {
      keep = value->kind == Term::Kind::kNumber && value->number != 0;
      continue;
    }
    const std::string attribute_name = name;
    const auto drawn = [&] { return draw(*kind, attribute_name, inputs); };
    const Attr given = argument(*value, draw ? std::function<Attr()>(drawn) : nullptr);
    if (name == "extents" && value->kind == Term::Kind::kName)
      bindings_.attributes[extents_of(value->name)] = std::vector<sym::Expr>(b_.shape(inputs[0]));
    attributes.set(name, to_graph(name, normalized(name, given, rank)));
  }
  if (is_reduction(*kind) && (keep || !attributes.find("dims"))) {
    const bool all = !attributes.find("dims");
    if (!all && attributes.integers("dims").empty()) return {inputs[0]};
    return {
        ops::reduce(b_, *kind, inputs[0], all ? std::vector<int64_t>() : attributes.integers("dims"), keep)};
  }
  return b_.add(*kind, inputs, std::move(attributes));
}

std::vector<graph::ValueId> replacement_of(graph::Builder& builder, const Rule& rule, Bindings bindings,
                                           const Operators* operators) {
  // The replacement defines anew the names of several results, and its own local names.
  if (rule.match.results.size() > 1 || rule.match.results[0].names.size() > 1)
    for (const Definition& each : rule.yield.results)
      for (const std::string& name : each.names) bindings.values.erase(name);
  for (const Definition& each : rule.yield.locals)
    for (const std::string& name : each.names) bindings.values.erase(name);
  Evaluator evaluator(builder, bindings);
  evaluator.folds = true;
  evaluator.operators = operators;
  return evaluator.side(rule.yield);
}

}  // namespace stridec::extend
