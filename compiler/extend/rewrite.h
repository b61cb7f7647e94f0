// Rewrites a graph by rules, to a fixed point.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {
class Builder;
}

namespace stridec::extend {

struct Bindings;  // evaluate.h

// What one rule did to one graph.
struct RuleEffect {
  std::string file, rule;
  int fired = 0;
  std::vector<std::string> nodes;  // origins of the nodes that it replaced, each once
  struct NearMiss {
    std::string node, reason;
    int depth = 0;  // operations of the pattern that were found there
  };
  std::vector<NearMiss> near_misses;  // the closest ones, at most kMostNearMisses
  int missed = 0;                     // places that begin like the pattern
};
inline constexpr size_t kMostNearMisses = 8;

struct Rewritten {
  std::vector<RuleEffect> effects;        // one for each rule, in order
  std::vector<std::string> trace;         // the rules that fired, in order
  std::map<std::string, std::string> by;  // origin of a node -> the last rule that replaced it
  bool changed() const { return !trace.empty(); }
};

struct RewriteOptions {
  bool explains = false;                 // collect near misses
  int most = 0;                          // firings; 0: in proportion to the graph
  bool throws = true;                    // where the bound is reached; false: stop
  const Operators* operators = nullptr;  // of the user, that replacements name
};

// A rule, or the file that has it, and the rules of one pass in the order in which they are tried.
struct RuleOf {
  const RuleFile* file;
  const Rule* rule;
  // Builds the replacement in place of the rule's yield, if it is set. What it throws says why the rule does
  // not fire there.
  using Build = std::function<std::vector<graph::ValueId>(graph::Builder& builder, const Bindings& bindings)>;
  Build build = {};
};
std::vector<RuleOf> rules_at(const std::vector<RuleFile>& files, std::string_view pass);

// First rule first, until no rule fires. Drops the marks of gradients, which no rule sees. Throws Error
// (kDoesNotFit, "rules-loop") that names the rules which fire in turn, if they do not come to an end.
Rewritten rewrite(graph::Graph& graph, const std::vector<RuleOf>& rules, const RewriteOptions& options = {});

// "a -> b -> a": the shortest repetition at the end of the trace.
std::string cycle_of(const std::vector<std::string>& trace);

}  // namespace stridec::extend
