// Finds where a rule's pattern occurs in a graph.
#pragma once

#include <string>
#include <vector>

#include "compiler/extend/evaluate.h"
#include "compiler/extend/pattern.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

struct Match {
  Bindings bindings;
  std::vector<graph::NodeId> nodes;     // that compute the matched values
  std::vector<graph::ValueId> results;  // of the rule, in order
  std::vector<sym::Expr> requirements;  // by Rule::require: 1 if proved
};

// Why a place does not match, and how much of the pattern it has.
struct Mismatch {
  int depth = 0;  // operations of the pattern that were found
  std::string reason;
};

class Matcher {
 public:
  // `builder` proves; it adds nothing. `explains`: match() says why it fails.
  Matcher(graph::Builder& builder, const GraphIndex& index, bool explains, const Operators* operators)
      : b_(builder), index_(index), explains_(explains), operators_(operators) {}

  std::optional<Match> match(const Pattern& pattern, graph::NodeId root);
  const Mismatch& mismatch() const { return mismatch_; }

 private:
  struct Goal {
    const Term* term;
    graph::ValueId value;
  };
  struct State {
    Match made;
    std::vector<Goal> goals;
  };

  bool solve(State& state);
  bool step(State& state, const Goal& goal);
  bool name(State& state, const Term& term, graph::ValueId value);
  bool bind(State& state, const Variable& variable, graph::ValueId value);
  bool number(const State& state, const Term& term, graph::ValueId value);
  bool primitive(State& state, const Term& term, const PatternPart& part, graph::ValueId value);
  bool composite(State& state, const Term& term, const PatternPart& part, graph::ValueId value);
  bool kept_reduction(State& state, const PatternPart& part, graph::ValueId value);
  bool matmul(State& state, const Term& term, graph::ValueId value);
  bool attributes(State& state, const Split& parts, const graph::Node& node);
  bool unify(State& state, const std::string& name, const Attr& value);
  bool is_free(const State& state, const Term& term) const;
  bool elements(State& state, const Term& list, const Attr& value);
  bool equal(const Attr& a, const Attr& b) const;
  bool reach_results(State& state);
  bool finish(State& state);
  bool conditions(State& state);
  bool fail(const State& state, const std::string& reason);
  template <class... Args>
  bool fails(const State& state, const Args&... args);
  std::string shown(graph::ValueId value) const;

  graph::Builder& b_;
  const GraphIndex& index_;
  const bool explains_;
  const Operators* const operators_;
  const Pattern* pattern_ = nullptr;
  const Rule* rule_ = nullptr;
  const graph::Region* region_ = nullptr;
  graph::ValueId root_;
  Mismatch mismatch_;
  int steps_ = 0;
};

}  // namespace stridec::extend
