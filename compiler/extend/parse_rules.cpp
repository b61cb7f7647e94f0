#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/sha256.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/extend/check_names.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/rule.h"
#include "compiler/extend/rule_tokens.h"
#include "compiler/extend/token_reader.h"
#include "compiler/extend/vocabulary.h"

namespace stridec::extend {
namespace {

constexpr int kMaxDepth = 100;        // of nested expressions; a file may be hostile
constexpr int kMostOperators = 1000;  // between operands of an expression: they nest in the tree as chains

const std::set<std::string, std::less<>>& keywords() {
  static const std::set<std::string, std::less<>> kWords = {"rules", "rule",    "let",   "match", "yield",
                                                            "where", "require", "check", "with",  "in",
                                                            "and",   "or",      "not"};
  return kWords;
}

class Parser : TokenReader<RuleToken> {
 public:
  Parser(std::string_view text, const std::string& path)
      : TokenReader(rule_tokens(text, path)), text_(text), path_(path) {}

  std::vector<Definition> definitions() {
    std::vector<Definition> out;
    definitions(out);
    end();
    return out;
  }
  Term term() {
    Term out = expression();
    end();
    return out;
  }

  void parse(RuleFile& file) {
    if (accept("rules")) {
      file.name = text("the name of the rules");
      expect("version");
      file.version = static_cast<int>(integer());
    }
    while (token().kind != RuleToken::Kind::kEnd) {
      if (!is("rule")) error(cat("expected 'rule', not ", shown(token())));
      file.rules.push_back(rule());
      for (size_t i = 0; i + 1 < file.rules.size(); ++i)
        if (file.rules[i].name == file.rules.back().name)
          error(cat("two rules are named '", file.rules.back().name, "'"), file.rules.back().at);
    }
  }

 private:
  void end() const {
    if (token().kind != RuleToken::Kind::kEnd) error(cat("expected the end, not ", shown(token())));
  }
  static std::string shown(const RuleToken& token) {
    return token.kind == RuleToken::Kind::kEnd ? "the end of the file" : cat("'", token.text, "'");
  }
  [[noreturn]] void error(const std::string& what) const { error(what, token().at); }
  [[noreturn]] void error(const std::string& what, Position at) const {
    rule_error(text_, path_, at, what, "docs/extending.md has the grammar of rules");
  }
  void expect(std::string_view text) {
    if (!accept(text)) error(cat("expected '", text, "', not ", shown(token())));
  }
  std::string text(const std::string& what) {
    if (token().kind != RuleToken::Kind::kText)
      error(cat("expected ", what, " in quotes, not ", shown(token())));
    return tokens_[at_++].text;
  }
  std::string word(const std::string& what) {
    if (token().kind != RuleToken::Kind::kName || keywords().contains(token().text))
      error(cat("expected ", what, ", not ", shown(token())));
    return tokens_[at_++].text;
  }
  double number() {
    const bool negative = accept("-");
    if (token().kind != RuleToken::Kind::kNumber) error(cat("expected a number, not ", shown(token())));
    const double value = std::strtod(tokens_[at_++].text.c_str(), nullptr);
    return negative ? -value : value;
  }
  int64_t integer() {
    const std::string& digits = token().text;
    int64_t value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (token().kind != RuleToken::Kind::kNumber || status != std::errc() ||
        end != digits.data() + digits.size())
      error(cat("expected an integer, not ", shown(token())));
    ++at_;
    return value;
  }

  Rule rule() {
    Rule made;
    const size_t begin = token().begin;
    expect("rule");
    made.at = token().at;
    made.name = word("the name of a rule");
    while (!is(":")) {
      if (accept("at"))
        made.at_pass = word("the name of a pass");
      else if (accept("priority"))
        made.priority = static_cast<int>(number());
      else if (accept("shared"))
        made.shared = true;
      else if (accept("once"))
        made.once = true;
      else
        error(cat("expected ':', not ", shown(token())));
    }
    expect(":");
    while (token().kind != RuleToken::Kind::kEnd && !is("rule")) clause(made);
    made.text = std::string(text_.substr(begin, tokens_[at_ - 1].end - begin));
    validate(made);
    return made;
  }

  void clause(Rule& made) {
    if (accept("let")) {
      do made.variables.push_back(variable());
      while (accept(","));
    } else if (accept("match")) {
      side(made.match);
      if (accept("=>")) side(made.yield);
    } else if (accept("yield")) {
      side(made.yield);
    } else if (accept("where")) {
      do made.where.push_back(expression());
      while (accept(","));
    } else if (accept("require")) {
      Requirement requirement{.condition = expression(), .sentence = {}};
      requirement.sentence = text("the sentence of a run that does not meet the requirement");
      made.require.push_back(std::move(requirement));
    } else if (accept("check")) {
      check(made.check);
    } else if (made.match.results.empty()) {
      side(made.match);
      expect("=>");
      side(made.yield);
    } else {
      error(cat("expected a clause (let, match, yield, where, require, check), not ", shown(token())));
    }
  }

  Variable variable() {
    Variable made{.at = token().at};
    made.name = word("the name of a variable");
    expect(":");
    made.constant = accept("const");
    const size_t begin = token().begin;
    dtypes(made.dtypes);
    made.dtypes_text = std::string(text_.substr(begin, tokens_[at_ - 1].end - begin));
    expect("[");
    bool rest = false;
    while (!is("]")) {
      Dim dim;
      if (accept("...")) {
        if (rest) error("'...' occurs twice among the dims");
        rest = true;
        dim.kind = Dim::Kind::kRest;
      } else if (token().kind == RuleToken::Kind::kNumber) {
        dim = {.kind = Dim::Kind::kSize, .size = integer()};
      } else {
        dim.name = word("a dim");
      }
      made.dims.push_back(std::move(dim));
      if (!accept(",")) break;
    }
    expect("]");
    return made;
  }

  void dtypes(std::vector<DType>& out) {
    const bool several = accept("{");
    do {
      const std::string name = word("a type");
      const std::vector<DType> known = dtypes_named(name);
      out.insert(out.end(), known.begin(), known.end());
      if (known.empty())
        error(cat("'", name, "' is neither a type nor one of float, int, number, any"), tokens_[at_ - 1].at);
    } while (several && accept(","));
    if (several) expect("}");
  }

  // `term`, `a = term; b = term`, `a, b = term`, then `with c = term; ...`.
  void side(Side& out) {
    if (!out.results.empty()) error("a rule can have only one match and one yield");
    definitions(out.results);
    if (accept("with")) {
      definitions(out.locals);
      for (const Definition& local : out.locals)
        if (local.names.empty()) error("'with' must define names: with m = reduce_max(x)", local.term.at);
    }
  }
  bool names_follow() const {
    size_t at = at_;
    while (tokens_[at].kind == RuleToken::Kind::kName) {
      if (tokens_[at + 1].text == "=" && tokens_[at + 1].kind == RuleToken::Kind::kSign) return true;
      if (tokens_[at + 1].text != ",") return false;
      at += 2;
    }
    return false;
  }
  void definitions(std::vector<Definition>& out) {
    do {
      Definition made;
      if (names_follow()) {
        do made.names.push_back(word("a name"));
        while (accept(","));
        expect("=");
      }
      made.term = expression();
      out.push_back(std::move(made));
    } while (accept(";"));
  }

  void check(Check& out) {
    if (accept("exact")) {
      out.kind = Check::Kind::kExact;
    } else if (accept("ulp")) {
      out.kind = Check::Kind::kUlp;
      const Position at = token().at;
      const double count = number();
      if (!(count >= 0 && count <= 1e6) || count != std::floor(count))
        error("expected a number of units in the last place from 0 to 1000000", at);
      out.ulps = static_cast<int64_t>(count);
    } else if (accept("close")) {
      out.kind = Check::Kind::kClose;
      const Position at = token().at;
      out.absolute = out.relative = number();
      if (!(out.relative >= 0 && out.relative < 1)) error("expected a relative error from 0 to 1", at);
      if (token().kind == RuleToken::Kind::kNumber) out.absolute = number();
    } else if (accept("trusted")) {
      out.kind = Check::Kind::kTrusted;
      out.reason = text("the reason for trusting the rule");
    } else {
      error(cat("expected exact, ulp, close or trusted, not ", shown(token())));
    }
    if (!accept("assume")) return;
    if (accept("finite")) {
      out.finite = true;
      return;
    }
    expect("in");
    expect("[");
    const Position at = token().at;
    const double low = number();
    expect(",");
    const double high = number();
    expect("]");
    if (!(low < high)) error("low must be below high in a range [low, high]", at);
    out.finite = true;
    out.range = {low, high};
  }

  // -- expressions
  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxDepth) parser.error("an expression is nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  template <class... Args>
  static Term call(std::string name, Position at, Args... args) {
    Term term{.kind = Term::Kind::kCall, .name = std::move(name), .at = at};
    term.args.reserve(sizeof...(args));
    (term.args.push_back(std::move(args)), ...);
    return term;
  }
  using Next = Term (Parser::*)();
  Term infix(std::initializer_list<std::string_view> signs, Next next) {
    Term left = (this->*next)();
    for (;;) {
      const auto sign = std::find_if(signs.begin(), signs.end(), [&](std::string_view s) { return is(s); });
      if (sign == signs.end()) return left;
      if (++operators_ > kMostOperators)
        error(cat("an expression has more than ", kMostOperators, " operators; name its parts"));
      const Position at = tokens_[at_++].at;
      const std::string name(*sign == "&&" ? "and" : *sign == "||" ? "or" : *sign);
      Term right = (this->*next)();
      left = call(name, at, std::move(left), std::move(right));
    }
  }
  Term expression() {
    if (depth_ == 0) operators_ = 0;
    const Deeper deeper(*this);
    return infix({"or", "||"}, &Parser::conjunction);
  }
  Term conjunction() { return infix({"and", "&&"}, &Parser::negation); }
  Term negation() {
    if (!is("not")) return infix({"==", "!=", "<=", ">=", "<", ">", "in"}, &Parser::sum);
    const Deeper deeper(*this);
    const Position at = tokens_[at_++].at;
    return call("not", at, negation());
  }
  Term sum() { return infix({"+", "-"}, &Parser::product); }
  Term product() { return infix({"*", "/", "%"}, &Parser::prefix); }
  Term prefix() {
    if (!is("-")) return postfix();
    const Deeper deeper(*this);
    const Position at = tokens_[at_++].at;
    Term of = prefix();
    if (of.kind == Term::Kind::kNumber) {
      of.number = -of.number;
      return of;
    }
    return call("neg", at, std::move(of));
  }
  Term postfix() {
    Term term = atom();
    if (term.kind == Term::Kind::kCall && accept("{")) {
      attributes(term, "}");
      expect("}");
    }
    if (term.kind == Term::Kind::kCall && is(".")) {
      ++at_;
      term.output = static_cast<int>(integer());
    }
    if (term.kind == Term::Kind::kNumber && accept("~")) term.tolerance = number();
    return term;
  }
  void attributes(Term& term, std::string_view close) {
    if (is(close)) return;
    do {
      const Position at = token().at;
      std::string name = word("the name of an attribute");
      for (const auto& [other, value] : term.attributes)
        if (other == name) error(cat("attribute '", name, "' is given twice"), at);
      Term flag{.kind = Term::Kind::kNumber, .number = 1, .integer = true, .at = at};
      term.attributes.push_back({std::move(name), accept("=") ? expression() : std::move(flag)});
    } while (accept(","));
  }
  Term list(Term::Kind kind, std::string_view close) {
    Term term{.kind = kind, .at = tokens_[at_ - 1].at};
    while (!is(close)) {
      term.args.push_back(expression());
      if (!accept(",")) break;
    }
    expect(close);
    return term;
  }
  // cost(match), flops(yield): what a side of the rule costs. A formula has no sides.
  Term measure() {
    Term side{.kind = Term::Kind::kName, .at = tokens_[at_ + 2].at};
    Term term{.kind = Term::Kind::kCall, .name = token().text, .at = token().at};
    at_ += 2;
    if (!is("match") && !is("yield"))
      error(cat("'", term.name, "' takes match or yield, not ", shown(token())));
    side.name = tokens_[at_++].text;
    expect(")");
    term.args.push_back(std::move(side));
    return term;
  }
  Term atom() {
    const Deeper deeper(*this);
    const Position at = token().at;
    if (accept("(")) {
      Term inner = expression();
      expect(")");
      return inner;
    }
    if (accept("[")) return list(Term::Kind::kList, "]");
    if (accept("{")) return list(Term::Kind::kSet, "}");
    if (token().kind == RuleToken::Kind::kNumber) {
      const std::string& digits = token().text;
      Term term{.kind = Term::Kind::kNumber, .at = at};
      term.integer = digits.find_first_of(".eE") == std::string::npos;
      term.number = number();
      return term;
    }
    if (token().kind == RuleToken::Kind::kText)
      return {.kind = Term::Kind::kText, .name = text(""), .at = at};
    if (is_measure(token().text) && tokens_[at_ + 1].text == "(") return measure();
    // In front of operands `and` and `or` are operators of the graph.
    const bool prefix = (is("and") || is("or")) && tokens_[at_ + 1].text == "(";
    Term term{
        .kind = Term::Kind::kName, .name = prefix ? tokens_[at_++].text : word("an expression"), .at = at};
    if (!accept("(")) return term;
    term.kind = Term::Kind::kCall;
    while (!is(")")) {
      const bool named = token().kind == RuleToken::Kind::kName && tokens_[at_ + 1].text == "=" &&
                         tokens_[at_ + 1].kind == RuleToken::Kind::kSign;
      if (named) {
        attributes(term, ")");
        break;
      }
      term.args.push_back(expression());
      if (!accept(",")) break;
    }
    expect(")");
    return term;
  }

  // What a rule has to have, whatever its operators are.
  void validate(const Rule& made) {
    if (made.match.results.empty()) error(cat("rule '", made.name, "' has no match"), made.at);
    if (made.yield.results.empty()) error(cat("rule '", made.name, "' has no yield"), made.at);
    std::set<std::string> names;
    for (const Variable& variable : made.variables)
      if (!names.insert(variable.name).second)
        error(cat("variable '", variable.name, "' is declared twice"), variable.at);
    const auto names_of = [](const Side& side) {
      std::vector<std::string> all;
      for (const Definition& each : side.results) all.insert(all.end(), each.names.begin(), each.names.end());
      return all;
    };
    if (made.match.results.size() > 1 || made.match.results[0].names.size() > 1)
      if (names_of(made.match) != names_of(made.yield) || names_of(made.match).empty())
        error(cat("rule '", made.name,
                  "' has several results: match and yield must name the same ones in the same order"),
              made.at);
    if (names_of(made.match).size() < 2 && made.yield.results.size() != 1)
      error(cat("rule '", made.name, "' matches one result and yields ", made.yield.results.size()), made.at);
    for (const Definition& result : made.match.results)
      if (result.term.kind != Term::Kind::kCall)
        error("a match must begin with an operation", result.term.at);
  }

  std::string_view text_;
  const std::string& path_;
  int depth_ = 0, operators_ = 0;
};

}  // namespace

const Variable* Rule::find(std::string_view variable) const {
  const auto found = std::ranges::find(variables, variable, &Variable::name);
  return found == variables.end() ? nullptr : &*found;
}

RuleFile parse_rules(std::string text, const std::string& path, const Operators* operators) {
  RuleFile file{.path = path, .name = path, .sha256 = sha256(text.data(), text.size())};
  file.text = std::move(text);
  Parser(file.text, path).parse(file);
  sort_stable(file.rules, [](const Rule& a, const Rule& b) { return a.priority > b.priority; });
  for (const Rule& rule : file.rules) check_names(file, rule, operators);
  return file;
}

std::vector<Definition> parse_definitions(std::string_view text, const std::string& path) {
  return Parser(text, path).definitions();
}

Term parse_expression(std::string_view text, const std::string& path) { return Parser(text, path).term(); }

RuleFile read_rules(const std::string& path, const Operators* operators) {
  return parse_rules(read_file(path), path, operators);
}

std::string to_string(const Term& term) {
  const auto list = [](const std::vector<Term>& args) {
    return join(args, ", ", [](const Term& arg) { return to_string(arg); });
  };
  switch (term.kind) {
    case Term::Kind::kName: return term.name;
    case Term::Kind::kText: return cat("\"", term.name, "\"");
    case Term::Kind::kList: return cat("[", list(term.args), "]");
    case Term::Kind::kSet: return cat("{", list(term.args), "}");
    case Term::Kind::kNumber: {
      char buffer[40];
      return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, term.number).ptr);
    }
    case Term::Kind::kCall: break;
  }
  const bool sign =
      !starts_rule_name(term.name[0]) || term.name == "and" || term.name == "or" || term.name == "in";
  if (sign) return cat("(", to_string(term.args[0]), " ", term.name, " ", to_string(term.args[1]), ")");
  std::string out = cat(term.name, "(", list(term.args), ")");
  if (!term.attributes.empty())
    out += cat("{",
               join(term.attributes, ", ",
                    [](const NamedTerm& item) { return cat(item.name, " = ", to_string(item.value)); }),
               "}");
  return out;
}

std::string_view name(Check::Kind kind) {
  static constexpr std::string_view kNames[] = {"exact", "ulp", "close", "trusted"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace stridec::extend
