#include "compiler/extend/rewrite.h"

#include <algorithm>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/match.h"
#include "compiler/extend/requirement.h"
#include "compiler/graph/gradient_marks.h"
#include "compiler/graph/undo.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::Region;
using graph::ValueId;

constexpr int kLeastFirings = 1000, kFiringsPerNode = 20;
// Above this number, looking at every node again costs less.
constexpr size_t kMostUnsettled = 1000;

class Rewriter {
 public:
  Rewriter(Graph& graph, const std::vector<RuleOf>& rules, const RewriteOptions& options)
      : graph_(graph), rules_(rules), options_(options), index_(graph) {
    most_ = options.most > 0 ? options.most
                             : kLeastFirings + kFiringsPerNode * static_cast<int>(graph.nodes.size());
    patterns_.reserve(rules.size());
    for (size_t r = 0; r < rules.size(); ++r) {
      const Rule& rule = *rules[r].rule;
      made_.effects.push_back({.file = rules[r].file->path, .rule = rule.name});
      const Pattern& pattern = patterns_.emplace_back(rule);
      for (const OpKind kind : pattern.root_kinds()) by_kind_[static_cast<size_t>(kind)].push_back(r);
      reach_ = std::max(reach_, pattern.depth() + 1);  // one more, for readers of bound values
      if (rule.match.results.size() > 1) keeps_settled_ = false;
    }
    if (options.explains) keeps_settled_ = false;  // every sweep reports its near misses
  }

  Rewritten run() {
    for (bool again = true; again && !stopped_;) {
      again = false;
      for (RuleEffect& effect : made_.effects) effect.near_misses.clear(), effect.missed = 0;
      again = region(graph_.top);
    }
    graph::eliminate_dead_code(graph_);
    for (RuleEffect& effect : made_.effects)
      std::ranges::sort(effect.near_misses, std::greater<>(), &RuleEffect::NearMiss::depth);
    return std::move(made_);
  }

 private:
  bool region(Region& of) {
    bool changed = false;
    // Values that must be defined before a place. Grows along the region.
    const std::vector<NodeId> nodes = of.nodes;
    for (const NodeId id : nodes) {
      for (size_t r = 0; r < graph_[id].regions.size() && !stopped_; ++r)
        changed = region(graph_[id].regions[r]) || changed;
      if (dead_.contains(id) || is_settled(id)) continue;
      bool settled = true;
      for (const size_t rule : by_kind_[static_cast<size_t>(graph_[id].kind)])
        if (fire(of, id, rule, settled)) {
          changed = true;
          settled = false;
          break;
        }
      if (settled) settle(id);
      if (stopped_) break;
    }
    return changed;
  }

  // A node is settled if no pattern matches at it. A change of anything that a pattern may read unsettles it.
  bool is_settled(NodeId id) const { return was_settled(id) && settled_[id.value] == epoch_; }
  void settle(NodeId id) {
    if (!keeps_settled_) return;
    if (!was_settled(id)) settled_.resize(graph_.nodes.size());
    settled_[id.value] = epoch_;
  }
  void unsettle_all() { ++epoch_; }
  // To be called when the producer or the readers of these values have changed. Unsettles their producers,
  // and their transitive readers up to the depth of the patterns.
  void unsettle(std::vector<ValueId> values) {
    if (!keeps_settled_) return;
    std::set<NodeId> seen;
    for (const ValueId value : values)
      if (const NodeId producer = graph_[value].producer; was_settled(producer)) settled_[producer.value] = 0;
    for (int step = 0; step < reach_ && !values.empty(); ++step) {
      std::vector<ValueId> above;
      for (const ValueId value : values)
        for (const NodeId user : index_.users[value.value]) {
          if (!seen.insert(user).second) continue;
          if (seen.size() > kMostUnsettled) return unsettle_all();
          if (was_settled(user)) settled_[user.value] = 0;
          above.insert(above.end(), graph_[user].outputs.begin(), graph_[user].outputs.end());
        }
      values = std::move(above);
    }
  }
  bool was_settled(NodeId id) const { return id.valid() && static_cast<size_t>(id.value) < settled_.size(); }

  // `settled`: set to false where the pattern matches, but its replacement does not fit.
  bool fire(Region& of, NodeId root, size_t r, bool& settled) {
    RuleEffect& effect = made_.effects[r];
    const Rule& rule = *rules_[r].rule;
    if (const auto by = made_by_.find(root); by != made_by_.end() && by->second == r) return false;
    // Only the whole match can explain a near miss.
    if (!options_.explains && !patterns_[r].may_match(graph_, index_, root)) return false;
    if (!prover_) prover_.emplace(graph_, ops::shape_table());
    Matcher matcher(*prover_, index_, options_.explains, options_.operators);
    const auto match = matcher.match(patterns_[r], root);
    if (!match) {
      if (options_.explains) missed(effect, rule, root, matcher.mismatch());
      return false;
    }
    settled = false;
    const std::string problem = replace(of, root, r, *match);
    prover_.reset();
    if (!problem.empty()) {
      if (options_.explains) missed(effect, rule, root, {static_cast<int>(match->nodes.size()) + 1, problem});
      return false;
    }
    record(effect, *match);
    return true;
  }

  void record(RuleEffect& effect, const Match& match) {
    ++effect.fired;
    made_.trace.push_back(effect.rule);
    for (const NodeId id : match.nodes) {
      const std::string& origin = graph_[id].origin;
      if (origin.empty()) continue;
      made_.by[origin] = effect.rule;
      if (std::ranges::count(effect.nodes, origin) == 0) effect.nodes.push_back(origin);
    }
    if (static_cast<int>(made_.trace.size()) < most_) return;
    stopped_ = true;
    if (!options_.throws) return;
    throw Error({.kind = ErrorKind::kDoesNotFit,
                 .code = "rules-loop",
                 .message = cat("rules fired ", made_.trace.size(),
                                " times and do not come to an end: ", cycle_of(made_.trace)),
                 .where = {.file = effect.file, .node = graph_[match.nodes.back()].origin},
                 .help = "'stridec rules check' finds such rules; give one of them a condition that the "
                         "replacement does not meet"});
  }

  void missed(RuleEffect& effect, const Rule& rule, NodeId root, const Mismatch& why) {
    if (why.depth == 0 || why.reason.empty()) return;
    // If the pattern has several operations, a match of the root alone is not a near miss.
    const bool single = std::ranges::none_of(rule.match.results, [](const Definition& each) {
      return std::ranges::any_of(each.term.args,
                                 [](const Term& arg) { return arg.kind == Term::Kind::kCall; });
    });
    if (why.depth < 2 && !single) return;
    ++effect.missed;
    const Node& node = graph_[root];
    RuleEffect::NearMiss miss{.node = node.origin.empty() ? std::string(graph::name(node)) : node.origin,
                              .reason = why.reason,
                              .depth = why.depth};
    effect.near_misses.push_back(std::move(miss));
    if (effect.near_misses.size() <= kMostNearMisses) return;
    effect.near_misses.erase(std::ranges::min_element(effect.near_misses, {}, &RuleEffect::NearMiss::depth));
  }

  // Replaces the match. Returns the reason if it does not fit, otherwise "".
  std::string replace(Region& of, NodeId root, size_t r, const Match& match) {
    const Rule& rule = *rules_[r].rule;
    const size_t nodes = graph_.nodes.size(), guards = graph_.guards.size();
    const graph::Undo undo(graph_);
    std::vector<ValueId> instead;
    std::string problem = build(of, root, rules_[r], match, instead);
    const std::vector<NodeId> added = take_added(nodes, instead);
    if (problem.empty()) problem = misplaced(of, root, match, instead, nodes);
    if (!problem.empty()) {
      undo();
      graph_.guards.resize(guards);
      index_.grow(graph_);
      return problem;
    }
    place(of, root, added);
    std::vector<ValueId> touched = match.results;
    touched.insert(touched.end(), instead.begin(), instead.end());
    for (const NodeId id : added) {
      made_by_[id] = r;
      touched.insert(touched.end(), graph_[id].inputs.begin(), graph_[id].inputs.end());
    }
    if (!rule.once)
      for (const ValueId value : instead) made_by_.erase(graph_[value].producer);
    for (size_t i = 0; i < instead.size(); ++i) redirect(match.results[i], instead[i]);
    for (const NodeId id : match.nodes) drop_if_unread(id, touched);
    if (graph_.guards.size() > guards)
      unsettle_all();  // with the new guards more conditions may be provable
    else
      unsettle(std::move(touched));
    return "";
  }

  std::string build(Region& of, NodeId root, const RuleOf& own, const Match& match,
                    std::vector<ValueId>& instead) {
    const Rule& rule = *own.rule;
    Builder builder(graph_, ops::shape_table());
    builder.set_origin(graph_[root].origin);
    for (size_t i = 0; i < match.requirements.size(); ++i) {
      if (match.requirements[i].is_const(1)) continue;
      if (&of != &graph_.top || builder.is_bound_in_run(match.requirements[i]))
        return cat("require ", to_string(rule.require[i].condition),
                   ": a run can check sizes of inputs alone, and only outside loops and branches");
      const std::vector<sym::Expr> values = compared_by(match.requirements[i]);
      const std::string& sentence = rule.require[i].sentence;
      if (!is_sentence(sentence, values.size()))
        return cat("require ", to_string(rule.require[i].condition), ": '", sentence, "' can name its ",
                   values.size(), " sizes by {0}, {1} ..., and cannot have other braces");
      builder.require(match.requirements[i], cat("rule ", rule.name, ": ", sentence), values);
    }
    const size_t guards = graph_.guards.size(), symbols = graph_.symbols.size();
    try {
      instead = own.build ? own.build(builder, match.bindings)
                          : replacement_of(builder, rule, match.bindings, options_.operators);
    } catch (const Error& error) {
      return cat("the replacement does not fit: ", error.diagnostic.message);
    }
    if (graph_.guards.size() > guards)
      return cat("the replacement needs ", sym::to_string(graph_.guards.back().condition),
                 ", which is not known; add it to the rule's where or require");
    if (graph_.symbols.size() > symbols) return "the replacement needs a size that only the run knows";
    for (size_t i = 0; i < instead.size(); ++i) {
      const graph::Type &was = graph_[match.results[i]].type, &is = graph_[instead[i]].type;
      bool same = was.dtype == is.dtype && was.shape.size() == is.shape.size();
      for (size_t d = 0; same && d < was.shape.size(); ++d)
        same = was.shape[d] == is.shape[d] || builder.holds(sym::eq(was.shape[d], is.shape[d]));
      if (!same)
        return cat("the replacement is ", graph::to_string(is), ", the match ", graph::to_string(was));
      if (std::ranges::count(match.results, instead[i]) > 0) return "the replacement is the match itself";
    }
    return "";
  }

  // Removes the nodes that a Builder has appended to the graph, and returns those that the values need.
  std::vector<NodeId> take_added(size_t before, const std::vector<ValueId>& values) {
    auto& top = graph_.top.nodes;
    auto first = top.end();
    while (first != top.begin() && std::prev(first)->value >= static_cast<int64_t>(before)) --first;
    std::vector<NodeId> added(first, top.end());
    top.erase(first, top.end());
    std::set<NodeId> needed;
    std::vector<ValueId> work = values;
    while (!work.empty()) {
      const NodeId producer = graph_[work.back()].producer;
      work.pop_back();
      if (!producer.valid() || producer.value < static_cast<int64_t>(before) ||
          !needed.insert(producer).second)
        continue;
      work.insert(work.end(), graph_[producer].inputs.begin(), graph_[producer].inputs.end());
    }
    std::erase_if(added, [&](NodeId id) { return !needed.contains(id); });
    return added;
  }

  // The replacement takes the root's place. Returns the reason if a result is read before it, otherwise "".
  std::string misplaced(const Region& of, NodeId root, const Match& match,
                        const std::vector<ValueId>& instead, size_t before) const {
    if (match.results.size() < 2) return "";
    for (const NodeId id : of.nodes) {
      if (id == root) return "";
      if (std::ranges::binary_search(match.nodes, id.value, {}, &NodeId::value) || dead_.contains(id))
        continue;
      for (const ValueId input : graph_[id].inputs) {
        const auto result = std::ranges::find(match.results, input);
        if (result == match.results.end()) continue;
        const NodeId producer = graph_[instead[static_cast<size_t>(result - match.results.begin())]].producer;
        if (producer.valid() && producer.value >= static_cast<int64_t>(before))
          return "a result is read before all operands of the replacement are there";
      }
    }
    return "";
  }

  void place(Region& of, NodeId root, const std::vector<NodeId>& added) {
    index_.grow(graph_);
    for (const NodeId id : added) {
      index_.region[id.value] = &of;
      for (const ValueId input : graph_[id].inputs) index_.users[input.value].push_back(id);
    }
    of.nodes.insert(std::ranges::find(of.nodes, root), added.begin(), added.end());
  }

  void redirect(ValueId from, ValueId to) {
    if (graph_[to].name.empty() && graph_[to].producer.valid()) graph_[to].name = graph_[from].name;
    auto& users = index_.users[from.value];
    for (const NodeId user : users) {
      std::ranges::replace(graph_[user].inputs, from, to);
      index_.users[to.value].push_back(user);
    }
    users.clear();
    if (index_.held[from.value] == 0) return;
    replace_results(graph_.top, from, to);
    index_.held[to.value] += std::exchange(index_.held[from.value], 0);
  }
  void replace_results(Region& of, ValueId from, ValueId to) {
    std::ranges::replace(of.results, from, to);
    for (const NodeId id : of.nodes)
      for (Region& inner : graph_[id].regions) replace_results(inner, from, to);
  }

  // Adds the values that lose a reader.
  void drop_if_unread(NodeId first, std::vector<ValueId>& lost) {
    std::vector<NodeId> work = {first};
    while (!work.empty()) {
      const NodeId id = work.back();
      work.pop_back();
      const Node& node = graph_[id];
      const bool read = std::ranges::any_of(node.outputs, [&](ValueId output) {
        return !index_.users[output.value].empty() || index_.held[output.value] > 0;
      });
      if (read || !node.regions.empty() || !dead_.insert(id).second) continue;
      for (const ValueId input : node.inputs) {
        std::erase(index_.users[input.value], id);
        lost.push_back(input);
        if (graph_[input].producer.valid()) work.push_back(graph_[input].producer);
      }
    }
  }

  Graph& graph_;
  const std::vector<RuleOf>& rules_;
  const RewriteOptions& options_;
  GraphIndex index_;
  Rewritten made_;
  std::vector<Pattern> patterns_;  // by rule
  std::vector<size_t> by_kind_[graph::kOpCount];
  bool keeps_settled_ = true;
  int reach_ = 0;
  std::vector<int> settled_;  // by node: the epoch in which it was settled
  int epoch_ = 1;
  std::optional<Builder> prover_;  // of the graph as it is
  std::set<NodeId> dead_;
  // For a node inside a replacement, the rule that made it. That rule is not applied there again.
  std::map<NodeId, size_t> made_by_;
  int most_;
  bool stopped_ = false;
};

}  // namespace

std::vector<RuleOf> rules_at(const std::vector<RuleFile>& files, std::string_view pass) {
  std::vector<RuleOf> out;
  for (const RuleFile& file : files)
    for (const Rule& rule : file.rules)
      if (rule.at_pass == pass) out.push_back({&file, &rule});
  return out;
}

Rewritten rewrite(Graph& graph, const std::vector<RuleOf>& rules, const RewriteOptions& options) {
  if (rules.empty()) return {};
  graph::drop_gradient_marks(graph);
  graph::eliminate_dead_code(graph);  // a dead mark would count as a reader
  Rewritten made = Rewriter(graph, rules, options).run();
  graph::drop_gradient_marks(graph);  // those of replacements
  return made;
}

std::string cycle_of(const std::vector<std::string>& trace) {
  const size_t n = trace.size();
  size_t length = 1;
  for (; length < n / 2; ++length) {
    // Three turns, so that a rule that fires twice in one turn is not a cycle of its own.
    bool repeats = true;
    for (size_t i = 0; i < std::min(2 * length, n - length) && repeats; ++i)
      repeats = trace[n - 1 - i] == trace[n - 1 - i - length];
    if (repeats) break;
  }
  std::vector<std::string> turn(trace.end() - static_cast<std::ptrdiff_t>(std::min(length, n)), trace.end());
  if (turn.empty()) return "";
  turn.push_back(turn.front());
  return join(turn, " -> ");
}

}  // namespace stridec::extend
