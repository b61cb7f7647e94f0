#include "compiler/extend/check_names.h"

#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/vocabulary.h"

namespace stridec::extend {
namespace {

using graph::OpKind;

bool is_infix(std::string_view name) {
  static constexpr std::string_view kInfix[] = {"+", "-", "*", "/", "neg"};
  return std::ranges::count(kInfix, name) > 0;
}

class Names {
 public:
  Names(const RuleFile& file, const Rule& rule) : file_(file), rule_(rule) {}

  void check() {
    for (const Variable& variable : rule_.variables) {
      tensors_.insert(variable.name);
      for (const Dim& dim : variable.dims)
        if (dim.kind == Dim::Kind::kName) bound_.insert(dim.name);
    }
    const std::set<std::string> variables = tensors_;
    define(rule_.match);
    side(rule_.match, true);
    for (const Variable& variable : rule_.variables)
      if (!used_.contains(variable.name))
        error(variable.at, cat("variable '", variable.name, "' does not occur in the match"));
    tensors_ = variables;
    if (rule_.match.results.size() == 1) define(rule_.match);
    define(rule_.yield);
    side(rule_.yield, false);
    tensors_ = variables;
    define(rule_.match);
    for (const Term& condition : rule_.where) this->condition(condition);
    for (const Requirement& each : rule_.require) this->condition(each.condition);
  }

 private:
  [[noreturn]] void error(Position at, const std::string& what, const std::string& help = {}) const {
    rule_error(file_.text, file_.path, at, what, help);
  }
  void define(const Side& side) {
    for (const auto* list : {&side.results, &side.locals})
      for (const Definition& each : *list) tensors_.insert(each.names.begin(), each.names.end());
  }
  void side(const Side& side, bool pattern) {
    for (const auto* list : {&side.results, &side.locals})
      for (const Definition& each : *list) tensor(each.term, pattern);
  }
  void tensor(const Term& term, bool pattern) {
    switch (term.kind) {
      case Term::Kind::kNumber: return;
      case Term::Kind::kName:
        if (!tensors_.contains(term.name))
          error(term.at, cat("'", term.name, "' is not declared"),
                cat("declare its type: let ", term.name, ": float[...]"));
        used_.insert(term.name);
        return;
      case Term::Kind::kCall: break;
      default: error(term.at, "a tensor expected");
    }
    if (is_infix(term.name)) {
      for (const Term& arg : term.args) tensor(arg, pattern);
      return;
    }
    const Composite* composite = find_composite(term.name);
    const auto kind = graph::parse_op(term.name);
    if (!composite && !kind)
      error(term.at, cat("there is no operator '", term.name, "'"),
            "'stridec rules operators' lists those that rules can name");
    if (kind && (*kind == OpKind::kConstant || *kind == OpKind::kElements || *kind == OpKind::kIf ||
                 *kind == OpKind::kLoop || *kind == OpKind::kUpdateState || *kind == OpKind::kSymbolOf ||
                 *kind == OpKind::kNonZero || *kind == OpKind::kRandomUniform))
      error(term.at, cat("'", term.name, "' cannot be in a rule: it has an effect, a body, or data"));
    if (pattern && composite && !composite->input_of && term.name != "matmul")
      error(term.at, cat("'", term.name, "' is for replacements"),
            "write the match with the operations that 'stridec inspect --stage=graph' shows");
    const Split parts = extend::split(term);
    if (composite) arity(term, parts, *composite);
    for (const Term* arg : parts.tensors) tensor(*arg, pattern);
    for (const auto& [name, value] : parts.attributes) attribute(*value, pattern);
  }
  void arity(const Term& term, const Split& parts, const Composite& composite) const {
    if (parts.tensors.size() != static_cast<size_t>(composite.tensors) ||
        term.args.size() > static_cast<size_t>(composite.tensors) + composite.parameters.size())
      error(term.at,
            cat("'", term.name, "' takes ", composite.tensors, " tensors",
                composite.parameters.empty() ? std::string() : " and the arguments ",
                join(composite.parameters, ", ", [](std::string_view p) { return std::string(p); })));
    for (const auto& [name, value] : parts.attributes)
      if (std::ranges::count(composite.parameters, name) == 0)
        error(value->at, cat("'", term.name, "' has no argument '", name, "'"));
  }
  // In a pattern a name that nothing else binds takes the attribute's value.
  void attribute(const Term& term, bool pattern) {
    if (pattern && term.kind == Term::Kind::kName && !is_word(term.name) && !tensors_.contains(term.name)) {
      bound_.insert(term.name);
      return;
    }
    condition(term);
  }
  void condition(const Term& term) {
    if (term.kind == Term::Kind::kName && !bound_.contains(term.name) && !tensors_.contains(term.name) &&
        !is_word(term.name))
      error(term.at, cat("nothing binds '", term.name, "'"),
            "dims are bound by 'let', attributes by the match");
    if (term.kind == Term::Kind::kCall)
      if (const std::string why = problem_of_call(term); !why.empty()) error(term.at, why);
    for (const Term& arg : term.args) condition(arg);
  }

  const RuleFile& file_;
  const Rule& rule_;
  std::set<std::string> tensors_, bound_, used_;
};

}  // namespace

void check_names(const RuleFile& file, const Rule& rule) { Names(file, rule).check(); }

}  // namespace stridec::extend
