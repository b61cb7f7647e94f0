// Evaluates the parts of a rule: tensors through the Builder, attributes and conditions as symbolic
// expressions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

struct Bindings {
  std::map<std::string, graph::ValueId, std::less<>> values;  // variables and named results
  std::map<std::string, Attr, std::less<>> attributes;        // dims and attributes
};

// The attribute that holds the shape of the operand whose extents `name` is bound to, for whole_but().
std::string extents_of(const std::string& name);

bool is_comparison(std::string_view name);  // "==", "<", ...
// The operator of "+", "-", "*", "/" and "neg" on tensors.
std::optional<graph::OpKind> infix_kind(std::string_view name);
[[noreturn]] void does_not_fit(const std::string& what);  // throws Error (kDoesNotFit)
// Whether the function of conditions gives one number, so that formulas may have it as an operand: dim(x, 0).
bool is_number_function(std::string_view name);

// Whether the function measures a side of a rule: cost(match), flops(yield), bytes(match).
bool is_measure(std::string_view name);

// "" if conditions have this function with this number of arguments.
std::string problem_of_call(const Term& call);

class Evaluator {
 public:
  Evaluator(graph::Builder& builder, Bindings& bindings) : b_(builder), bindings_(bindings) {}

  // Draws the value of an unbound attribute; empty: an unbound attribute is an error.
  using Draw = std::function<Attr(graph::OpKind kind, const std::string& attribute,
                                  const std::vector<graph::ValueId>& inputs)>;
  Draw draw;
  // Likewise for arguments of composites.
  std::function<Attr(const std::string& composite, const std::string& parameter, int rank)> draw_parameter;
  // Computes what depends on constants alone, so that rules do not match parts of their replacements.
  bool folds = false;
  // Readers of a value, for uses(x).
  std::function<int64_t(graph::ValueId)> uses;
  const Operators* operators = nullptr;  // of the user, for replacements
  const Rule* rule = nullptr;            // whose sides cost() measures

  // The results of a side, in order; binds the names that it defines.
  std::vector<graph::ValueId> side(const Side& side);
  Attr attribute(const Term& term);
  // 1 and 0 where it is decided; throws Error (kDoesNotFit) where operands do not suit it.
  sym::Expr condition(const Term& term);

 private:
  graph::ValueId tensor(const Term& term);
  graph::ValueId folded(graph::ValueId value);
  std::vector<graph::ValueId> call(const Term& term, size_t results = 1);
  std::vector<graph::ValueId> own_operator(const Term& term, const std::vector<graph::ValueId>& inputs,
                                           size_t results);
  std::vector<graph::ValueId> operands(const std::vector<const Term*>& terms, bool select);
  graph::ValueId infix(const Term& term);
  bool is_number(const Term& term) const;
  graph::ValueId number(const Term& term, DType dtype);
  Attr argument(const Term& term, const std::function<Attr()>& drawn);
  sym::Expr measure(const Term& term) const;
  void draw_elements(const Term& names, const Attr& drawn);
  Attr arithmetic(const Term& term);
  Attr function(const Term& term);
  std::vector<double> elements(graph::ValueId value) const;
  std::vector<double> doubles(const Term& term);
  sym::Expr scalar(const Term& term);
  std::vector<sym::Expr> list(const Term& term);
  graph::ValueId variable(const Term& term) const;
  sym::Expr comparison(const Term& term);
  sym::Expr member(const Term& term);
  bool is_tensor(const Term& term) const;

  graph::Builder& b_;
  Bindings& bindings_;
  const Side* side_ = nullptr;
};

// The results of the rule's replacement where its match binds names so. Throws Error (kDoesNotFit) where it
// does not fit.
std::vector<graph::ValueId> replacement_of(graph::Builder& builder, const Rule& rule, Bindings bindings,
                                           const Operators* operators = nullptr);

}  // namespace stridec::extend
