// Rewrite rules as data: the syntax tree of a file of rules (docs/extending.md has the grammar).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::extend {

class Operators;  // user_operator.h

struct Position {
  int line = 0, column = 0;
};

// An expression of a pattern, a replacement, an attribute or a condition. Infix operators are calls whose
// name is the operator: "+", "==", "and", "in"; "neg" and "not" are prefix.
struct NamedTerm;
struct Term {
  enum class Kind { kName, kNumber, kText, kCall, kList, kSet };
  Kind kind = Kind::kName;
  std::string name;  // of kName and kCall; the text of kText
  double number = 0;
  bool integer = false;
  double tolerance = 0;    // of a number in a pattern, relative
  std::vector<Term> args;  // of kCall: positional; of kList and kSet: elements
  std::vector<NamedTerm> attributes;
  int output = 0;  // of a call with several results
  Position at;

  bool is_call(std::string_view of) const { return kind == Kind::kCall && name == of; }
};
struct NamedTerm {
  std::string name;
  Term value;
};

struct Dim {
  enum class Kind { kName, kSize, kRest };
  Kind kind = Kind::kName;
  std::string name;
  int64_t size = 0;
};

struct Variable {
  std::string name;
  bool constant = false;
  std::vector<DType> dtypes;
  std::string dtypes_text;
  std::vector<Dim> dims;
  Position at;
};

// `names = term`; of a call with several results, one name for each.
struct Definition {
  std::vector<std::string> names;
  Term term;
};

// The results of a side, in order, and what they are written with.
struct Side {
  std::vector<Definition> results, locals;
};

struct Requirement {
  Term condition;
  std::string sentence;
};

struct Check {
  enum class Kind { kExact, kUlp, kClose, kTrusted };
  Kind kind = Kind::kExact;
  int64_t ulps = 0;                   // of kUlp
  double relative = 0, absolute = 0;  // absolute: where it is not given, as relative
  bool finite = false;
  std::optional<std::pair<double, double>> range;  // of the inputs
  std::string reason;                              // of kTrusted
};

struct Rule {
  std::string name;
  std::string at_pass = "import";
  int priority = 0;
  bool shared = false;  // values inside the match may have other readers
  bool once = false;    // it is not applied to a whole replacement of its own
  std::vector<Variable> variables;
  Side match, yield;
  std::vector<Term> where;
  std::vector<Requirement> require;
  Check check;
  Position at;
  std::string text;  // of the file, for hashes

  const Variable* find(std::string_view variable) const;
};

struct RuleFile {
  std::string path, name;
  int version = 1;
  std::string sha256;
  std::string text;
  std::vector<Rule> rules;
};

// The types that the name of a type or of a class (float, int, number, any) stands for; empty: it is neither.
std::vector<DType> dtypes_named(std::string_view name);

// `operators`: of the user, which replacements may name as `acme.Op`. Throws Error kMalformed, code
// "bad-rule", with file, line, column and the line itself.
RuleFile parse_rules(std::string text, const std::string& path, const Operators* operators = nullptr);
RuleFile read_rules(const std::string& path, const Operators* operators = nullptr);

// `name = term; a, b = term`, and a term, in the grammar of rules. They fail as parse_rules() does.
std::vector<Definition> parse_definitions(std::string_view text, const std::string& path);
Term parse_expression(std::string_view text, const std::string& path);

// Fails as parse_rules() does, with the line of the position.
[[noreturn]] void rule_error(std::string_view text, const std::string& path, Position at,
                             const std::string& what, const std::string& help = {});

// As the file has it, roughly, for messages.
std::string to_string(const Term& term);
std::string_view name(Check::Kind kind);  // "exact", "ulp", "close", "trusted"

}  // namespace stridec::extend
