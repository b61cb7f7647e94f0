#include "compiler/extend/match.h"

#include <algorithm>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/match_template.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

constexpr int kMostSteps = 20000;  // of one place; commutative operators multiply the ways to match
constexpr size_t kMostCandidates = 256;

}  // namespace

// ---- reasons ---------------------------------------------------------------------------------------------

std::string Matcher::shown(ValueId value) const {
  if (!explains_) return {};
  const NodeId producer = b_.graph()[value].producer;
  if (!b_.graph()[value].name.empty()) return cat("'", b_.graph()[value].name, "'");
  if (!producer.valid()) return "a parameter";
  return cat("the result of ", graph::name(b_.graph()[producer]));
}

bool Matcher::fail(const State& state, const std::string& reason) {
  const int depth = static_cast<int>(state.made.nodes.size());
  if (depth > mismatch_.depth || mismatch_.reason.empty()) mismatch_ = {depth, reason};
  return false;
}
template <class... Args>
bool Matcher::fails(const State& state, const Args&... args) {
  return explains_ ? fail(state, cat(args...)) : false;
}

// ---- goals -----------------------------------------------------------------------------------------------

std::optional<Match> Matcher::match(const Pattern& pattern, NodeId root) {
  pattern_ = &pattern;
  rule_ = &pattern.rule();
  region_ = index_.region[root.value];
  mismatch_ = {};
  steps_ = 0;
  const std::optional<ValueId> value = root_value(*rule_, b_.graph()[root]);
  if (!value) return std::nullopt;
  root_ = *value;
  const Definition& last = rule_->match.results.back();
  State state;
  state.goals.push_back({&last.term, root_});
  for (size_t i = 0; i < last.names.size(); ++i)
    state.made.bindings.values[last.names[i]] =
        b_.graph()[root].outputs[static_cast<size_t>(b_.graph()[root_].output) + i];
  if (!solve(state)) return std::nullopt;
  return std::move(state.made);
}

bool Matcher::solve(State& state) {
  while (!state.goals.empty()) {
    if (++steps_ > kMostSteps) return fails(state, "there are too many ways to match");
    const Goal goal = state.goals.back();
    state.goals.pop_back();
    const Term& term = *goal.term;
    // A commutative operator tries both orders, each with the rest of the goals.
    if (const PatternPart& part = pattern_->part(term); part.commutative) {
      State turned = state;
      if (step(state, goal) && solve(state)) return true;
      const NodeId producer = b_.graph()[goal.value].producer;
      if (!producer.valid() || b_.graph()[producer].kind != *part.op) return false;
      const Node& node = b_.graph()[producer];
      turned.made.nodes.push_back(producer);
      if (!attributes(turned, part.split, node)) return false;
      turned.goals.push_back({&term.args[0], node.inputs[1]});
      turned.goals.push_back({&term.args[1], node.inputs[0]});
      state = std::move(turned);
      continue;
    }
    if (!step(state, goal)) return false;
  }
  return reach_results(state);
}

bool Matcher::step(State& state, const Goal& goal) {
  const Term& term = *goal.term;
  const PatternPart& part = pattern_->part(term);
  switch (part.kind) {
    case PatternPart::Kind::kName: return name(state, term, goal.value);
    case PatternPart::Kind::kNumber: return number(state, term, goal.value);
    case PatternPart::Kind::kPrimitive: return primitive(state, term, part, goal.value);
    case PatternPart::Kind::kKeptReduction: return kept_reduction(state, part, goal.value);
    case PatternPart::Kind::kMatmul: return matmul(state, term, goal.value);
    case PatternPart::Kind::kComposite: return composite(state, term, part, goal.value);
  }
  return false;
}

bool Matcher::name(State& state, const Term& term, ValueId value) {
  auto& values = state.made.bindings.values;
  if (const auto bound = values.find(term.name); bound != values.end())
    return bound->second == value ||
           fails(state, "'", term.name, "' would be both ", shown(bound->second), " and ", shown(value));
  const PatternPart& part = pattern_->part(term);
  if (part.variable) return bind(state, *part.variable, value);
  if (!part.definition) return false;
  const Definition& each = *part.definition;
  if (each.names.size() > 1) {
    const NodeId producer = b_.graph()[value].producer;
    const auto i = std::ranges::find(each.names, term.name) - each.names.begin();
    if (!producer.valid() || b_.graph()[value].output != static_cast<int>(i) ||
        b_.graph()[producer].outputs.size() < each.names.size())
      return fails(state, shown(value), " is not result ", i, " of '", each.term.name, "'");
    for (size_t k = 0; k < each.names.size(); ++k) values[each.names[k]] = b_.graph()[producer].outputs[k];
    state.goals.push_back({&each.term, b_.graph()[producer].outputs[0]});
    return true;
  }
  values[term.name] = value;
  state.goals.push_back({&each.term, value});
  return true;
}

bool Matcher::equal(const Attr& a, const Attr& b) const {
  if (a == b) return true;
  if (const auto *x = std::get_if<sym::Expr>(&a), *y = std::get_if<sym::Expr>(&b); x && y)
    return b_.holds(sym::eq(*x, *y));
  const auto *x = std::get_if<std::vector<sym::Expr>>(&a), *y = std::get_if<std::vector<sym::Expr>>(&b);
  return x && y &&
         std::ranges::equal(*x, *y, [&](sym::Expr p, sym::Expr q) { return b_.holds(sym::eq(p, q)); });
}

bool Matcher::unify(State& state, const std::string& name, const Attr& value) {
  const auto [bound, fresh] = state.made.bindings.attributes.emplace(name, value);
  return fresh || equal(bound->second, value) ||
         fails(state, "'", name, "' would be both ", to_string(bound->second), " and ", to_string(value));
}

bool Matcher::bind(State& state, const Variable& variable, ValueId value) {
  const graph::Type& type = b_.type(value);
  const auto wrong = [&](const std::string& why) {
    if (!explains_) return false;
    return fails(state, "variable '", variable.name, "': ", shown(value), " is ", graph::to_string(type),
                 why);
  };
  if (std::ranges::count(variable.dtypes, type.dtype) == 0) return wrong(cat(", not ", variable.dtypes_text));
  if (variable.constant && !b_.graph()[value].known_data()) return wrong(", and no constant");
  const auto rest = std::ranges::find(variable.dims, Dim::Kind::kRest, &Dim::kind);
  const size_t before = static_cast<size_t>(rest - variable.dims.begin());
  const size_t after = rest == variable.dims.end() ? 0 : variable.dims.size() - before - 1;
  if (rest == variable.dims.end() ? type.shape.size() != before : type.shape.size() < before + after)
    return wrong(
        cat(", and the rule has ", before + after, rest == variable.dims.end() ? " dims" : " dims or more"));
  for (size_t i = 0; i < before + after; ++i) {
    const Dim& dim = variable.dims[i < before ? i : i + 1];
    const sym::Expr size = type.shape[i < before ? i : type.shape.size() - (before + after - i)];
    if (dim.kind == Dim::Kind::kName && !unify(state, dim.name, size)) return false;
    if (dim.kind == Dim::Kind::kSize && !b_.holds(sym::eq(size, dim.size)))
      return wrong(cat(", and a dim is ", dim.size));
  }
  state.made.bindings.values[variable.name] = value;
  return true;
}

bool Matcher::number(const State& state, const Term& term, ValueId value) {
  const std::optional<double>& constant = index_.splat(b_.graph(), value);
  if (!constant) return fails(state, shown(value), " is not the number ", to_string(term));
  return is_number(term, b_.dtype(value), *constant) ||
         fails(state, "a constant is ", *constant, ", not ", to_string(term));
}

bool Matcher::is_free(const State& state, const Term& term) const {
  const Bindings& bindings = state.made.bindings;
  return term.kind == Term::Kind::kName && !bindings.attributes.contains(term.name) &&
         !bindings.values.contains(term.name) && !is_word(term.name);
}

// Binds the names among the elements of a list.
bool Matcher::elements(State& state, const Term& list, const Attr& value) {
  if (std::ranges::none_of(list.args, [&](const Term& each) { return is_free(state, each); })) return true;
  const auto* actual = std::get_if<std::vector<sym::Expr>>(&value);
  if (!actual || actual->size() != list.args.size())
    return fails(state, "an attribute is ", to_string(value), ", and the rule has ", to_string(list));
  for (size_t i = 0; i < actual->size(); ++i)
    if (is_free(state, list.args[i]) && !unify(state, list.args[i].name, (*actual)[i])) return false;
  return true;
}

// Each attribute of the node is in the rule, or has its default.
bool Matcher::attributes(State& state, const Split& parts, const Node& node) {
  std::vector<DType> dtypes;
  for (const ValueId input : node.inputs) dtypes.push_back(b_.dtype(input));
  const int rank = node.inputs.empty() ? 0 : b_.rank(node.inputs[0]);
  const graph::Attributes usual = defaults(node.kind, dtypes);
  for (const auto& [name, value] : node.attributes.items()) {
    const std::string& key = name;
    const auto given =
        std::ranges::find_if(parts.attributes, [&](const auto& item) { return item.first == key; });
    const Attr actual = normalized(name, from_graph(value), rank);
    if (given == parts.attributes.end()) {
      const graph::AttributeValue* usually = usual.find(name);
      if (is_immaterial(node.kind, name, node) || (usually && equal(from_graph(*usually), actual))) continue;
      return fails(state, graph::name(node.kind), " has ", name, " = ", to_string(actual),
                   ", which the rule does not name");
    }
    const Term& term = *given->second;
    const auto& bindings = state.made.bindings;
    if (term.kind == Term::Kind::kList && !elements(state, term, actual)) return false;
    if (is_free(state, term)) {
      if (!unify(state, term.name, actual)) return false;
      if (name == "extents")
        state.made.bindings.attributes[extents_of(term.name)] =
            std::vector<sym::Expr>(b_.shape(node.inputs[0]));
      continue;
    }
    Bindings known = bindings;
    try {
      const Attr wanted = normalized(name, Evaluator(b_, known).attribute(term), rank);
      if (!equal(wanted, actual))
        return fails(state, graph::name(node.kind), " has ", name, " = ", to_string(actual), ", not ",
                     to_string(wanted));
    } catch (const Error& error) {
      return fails(state, name, ": ", error.diagnostic.message);
    }
  }
  for (const auto& [name, term] : parts.attributes)
    if (!node.attributes.find(name)) {
      const graph::AttributeValue* usually = usual.find(name);
      const Attr absent = usually ? from_graph(*usually) : Attr(sym::Expr(0));
      const bool free = term->kind == Term::Kind::kName && !is_word(term->name) &&
                        !state.made.bindings.attributes.contains(term->name);
      if (free && !unify(state, term->name, absent)) return false;
      Bindings known = state.made.bindings;
      if (!equal(Evaluator(b_, known).attribute(*term), absent))
        return fails(state, graph::name(node.kind), " has no ", name);
    }
  return true;
}

bool Matcher::primitive(State& state, const Term& term, const PatternPart& part, ValueId value) {
  const OpKind kind = *part.op;
  const Split& parts = part.split;
  const NodeId producer = b_.graph()[value].producer;
  if (!producer.valid() || b_.graph()[producer].kind != kind)
    return fails(state, shown(value), ", where the rule has ", graph::name(kind));
  const Node& node = b_.graph()[producer];
  if (b_.graph()[value].output != term.output) return fails(state, shown(value), " is another result");
  if (node.inputs.size() != parts.tensors.size())
    return fails(state, graph::name(kind), " has ", node.inputs.size(), " operands, the rule has ",
                 parts.tensors.size());
  state.made.nodes.push_back(producer);
  if (!attributes(state, parts, node)) return false;
  for (size_t i = node.inputs.size(); i-- > 0;) state.goals.push_back({parts.tensors[i], node.inputs[i]});
  return true;
}

// reshape(reduce(x)) to x's dims with size 1 in place of those that are reduced.
bool Matcher::kept_reduction(State& state, const PatternPart& part, ValueId value) {
  const OpKind kind = *part.op;
  const graph::Graph& graph = b_.graph();
  const NodeId reshape = graph[value].producer;
  const NodeId reduction = reshape.valid() && graph[reshape].kind == OpKind::kReshape
                               ? graph[graph[reshape].inputs[0]].producer
                               : NodeId();
  if (!reduction.valid() || graph[reduction].kind != kind)
    return fails(state, shown(value), ", where the rule has ", graph::name(kind), " that keeps dims");
  const Node& node = graph[reduction];
  graph::Shape kept = b_.shape(node.inputs[0]);
  for (const int64_t dim : node.attributes.integers("dims"))
    kept.at(static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(kept.size()) : dim)) = 1;
  if (!equal(Attr(std::vector<sym::Expr>(kept)), Attr(std::vector<sym::Expr>(b_.shape(value)))))
    return fails(state, shown(value), " does not keep the reduced dims");
  state.made.nodes.insert(state.made.nodes.end(), {reshape, reduction});
  Split parts = part.split;
  std::erase_if(parts.attributes, [](const auto& item) { return item.first == "keep"; });
  if (!attributes(state, parts, node)) return false;
  state.goals.push_back({parts.tensors[0], node.inputs[0]});
  return true;
}

// The forms of ops::matmul().
bool Matcher::matmul(State& state, const Term& term, ValueId value) {
  const graph::Graph& graph = b_.graph();
  const NodeId producer = graph[value].producer;
  if (!producer.valid() || graph[producer].kind != OpKind::kDotGeneral)
    return fails(state, shown(value), ", where the rule has matmul");
  const Node& node = graph[producer];
  const int64_t x = b_.rank(node.inputs[0]), y = b_.rank(node.inputs[1]);
  const auto list = [&](const char* name) { return node.attributes.integers(name); };
  const size_t batch = list("batch_a").size();
  std::vector<int64_t> dims(batch);
  for (size_t i = 0; i < batch; ++i) dims[i] = static_cast<int64_t>(i);
  const bool plain = batch == 0 && x >= 1 && (y == 1 || y == 2);
  const bool batched = batch > 0 && x == static_cast<int64_t>(batch) + 2 && y == x;
  if ((!plain && !batched) || list("batch_a") != dims || list("batch_b") != dims ||
      list("contract_a") != std::vector<int64_t>{x - 1} ||
      list("contract_b") != std::vector<int64_t>{std::max<int64_t>(y - 2, 0)})
    return fails(state, "a dot_general does not have the form of matmul");
  const graph::Attributes usual = defaults(node.kind, {b_.dtype(node.inputs[0]), b_.dtype(node.inputs[1])});
  for (const char* name : {"accumulate", "to"})
    if (node.attributes.find(name) && *node.attributes.find(name) != *usual.find(name))
      return fails(state, "a dot_general has ", name, " = ",
                   to_string(from_graph(*node.attributes.find(name))));
  if (node.attributes.integer_or("byte_blocks", 0) != 0) return fails(state, "a dot_general has byte_blocks");
  state.made.nodes.push_back(producer);
  State whole = state;
  whole.goals.push_back({&term.args[1], node.inputs[1]});
  whole.goals.push_back({&term.args[0], node.inputs[0]});
  // Of broadcast batch dims one operand may be an expansion.
  for (size_t i = 0; batched && i < 2; ++i) {
    const NodeId expand = graph[node.inputs[i]].producer;
    if (!expand.valid() || graph[expand].kind != OpKind::kExpand) continue;
    State peeled = state;
    peeled.made.nodes.push_back(expand);
    const ValueId inner = graph[expand].inputs[0];
    peeled.goals.push_back({&term.args[1], i == 1 ? inner : node.inputs[1]});
    peeled.goals.push_back({&term.args[0], i == 0 ? inner : node.inputs[0]});
    if (b_.rank(inner) >= 2 && solve(peeled)) {
      state = std::move(peeled);
      return true;
    }
  }
  state = std::move(whole);
  return true;
}

bool Matcher::composite(State& state, const Term& term, const PatternPart& part, ValueId value) {
  const Split& parts = part.split;
  const int rank = b_.rank(value);
  // Unknown arguments: `dims` is tried dim by dim, any other is a number that the comparison finds.
  Arguments arguments;
  std::string dims_name, number_name;
  bool lists_dim = false;  // the name is in a list: softmax(x, dims = [d])
  for (const auto& [name, given] : parts.attributes) {
    const bool word = given->kind == Term::Kind::kName && is_word(given->name);
    const bool free = is_free(state, *given);
    if (name == "dims" && given->kind == Term::Kind::kList && given->args.size() == 1 &&
        is_free(state, given->args[0])) {
      dims_name = given->args[0].name;
      arguments[name] = kUnknownNumber;
      lists_dim = true;
    } else if (word) {
      arguments[name] = given->name;
    } else if (free) {
      (name == "dims" ? dims_name : number_name) = given->name;
      arguments[name] = kUnknownNumber;
    } else {
      Bindings known = state.made.bindings;
      try {
        arguments[name] = Evaluator(b_, known).attribute(*given);
      } catch (const Error& error) {
        return fails(state, name, ": ", error.diagnostic.message);
      }
    }
  }
  for (int64_t dim = 0; dim < (dims_name.empty() ? 1 : rank); ++dim) {
    if (!dims_name.empty()) arguments["dims"] = std::vector<sym::Expr>{dim};
    const auto found = match_template(b_, *part.composite, arguments, value);
    if (!found) continue;
    if (!dims_name.empty() && !unify(state, dims_name, lists_dim ? Attr(sym::Expr(dim)) : arguments["dims"]))
      return false;
    if (!number_name.empty() && (!found->number || !unify(state, number_name, *found->number))) return false;
    state.made.nodes.insert(state.made.nodes.end(), found->nodes.begin(), found->nodes.end());
    state.goals.push_back({parts.tensors[0], found->input});
    return true;
  }
  return fails(state, shown(value), ", where the rule has ", term.name);
}

// ---- after the pattern -----------------------------------------------------------------------------------

namespace {

void names_in(const Term& term, std::vector<std::string>& out) {
  if (term.kind == Term::Kind::kName) out.push_back(term.name);
  for (const Term& arg : term.args) names_in(arg, out);
}
int depth_of(const Term& term) {
  int depth = 0;
  for (const Term& arg : term.args) depth = std::max(depth, depth_of(arg) + 1);
  return depth;
}

}  // namespace

// Results that the last one is not computed from: found among the readers of what is bound.
bool Matcher::reach_results(State& state) {
  auto& values = state.made.bindings.values;
  for (const Definition& each : rule_->match.results) {
    if (each.names.empty() || values.contains(each.names[0])) continue;
    std::vector<std::string> names;
    names_in(each.term, names);
    std::vector<ValueId> front;
    for (const std::string& name : names)
      if (const auto bound = values.find(name); bound != values.end()) front.push_back(bound->second);
    std::set<NodeId> seen;
    for (int depth = depth_of(each.term); depth > 0; --depth) {
      std::vector<ValueId> above;
      for (const ValueId value : front)
        for (const NodeId user : index_.users[value.value]) {
          if (index_.region[user.value] != region_ || seen.size() > kMostCandidates ||
              !seen.insert(user).second)
            continue;
          const Node& node = b_.graph()[user];
          above.insert(above.end(), node.outputs.begin(), node.outputs.end());
          if (node.outputs.size() < each.names.size()) continue;
          State tried = state;
          for (size_t i = 0; i < each.names.size(); ++i)
            tried.made.bindings.values[each.names[i]] = node.outputs[i];
          tried.goals.push_back({&each.term, node.outputs[0]});
          if (solve(tried)) {
            state = std::move(tried);
            return true;
          }
        }
      front = std::move(above);
    }
    return fails(state, "result '", each.names[0], "' was not found");
  }
  return finish(state);
}

bool Matcher::finish(State& state) {
  const graph::Graph& graph = b_.graph();
  std::vector<NodeId>& nodes = state.made.nodes;
  std::ranges::sort(nodes, {}, &NodeId::value);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const auto& values = state.made.bindings.values;
  for (const Definition& each : rule_->match.results)
    for (const std::string& name : each.names) state.made.results.push_back(values.at(name));
  if (state.made.results.empty()) state.made.results = {root_};
  for (const NodeId id : nodes) {
    if (index_.region[id.value] != region_) return fails(state, "a part is outside the loop or branch");
    for (const ValueId output : graph[id].outputs) {
      if (graph[output].elements) return fails(state, shown(output), " consists of sizes");
      if (rule_->shared || std::ranges::count(state.made.results, output) > 0) continue;
      const bool inside = std::ranges::all_of(index_.users[output.value], [&](NodeId user) {
        return std::ranges::binary_search(nodes, user.value, {}, &NodeId::value);
      });
      if (!inside || index_.held[output.value] > 0) return fails(state, shown(output), " has another reader");
    }
  }
  return conditions(state);
}

bool Matcher::conditions(State& state) {
  Evaluator evaluator(b_, state.made.bindings);
  evaluator.operators = operators_;
  evaluator.rule = rule_;
  evaluator.uses = [&](ValueId value) {
    return static_cast<int64_t>(index_.users[value.value].size()) + index_.held[value.value];
  };
  const auto wrong = [&](const char* clause, const Term& term, const std::string& why) {
    mismatch_.depth = 0;  // conditions come after the whole pattern
    return fails(state, clause, " ", to_string(term), ": ", why);
  };
  for (const Term& term : rule_->where) try {
      const sym::Expr condition = evaluator.condition(term);
      const sym::Answer answer = b_.prove(condition);
      if (answer == sym::Answer::kNo) return wrong("where", term, "it does not hold");
      if (answer == sym::Answer::kUnknown)
        return wrong("where", term, cat("not proved: ", sym::to_string(condition)));
    } catch (const Error& error) {
      return wrong("where", term, error.diagnostic.message);
    }
  for (const Requirement& each : rule_->require) try {
      const sym::Expr condition = evaluator.condition(each.condition);
      const sym::Answer answer = b_.prove(condition);
      if (answer == sym::Answer::kNo) return wrong("require", each.condition, "it never holds");
      state.made.requirements.push_back(answer == sym::Answer::kYes ? sym::Expr(1) : condition);
    } catch (const Error& error) {
      return wrong("require", each.condition, error.diagnostic.message);
    }
  return true;
}

}  // namespace stridec::extend
