#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/c_function.h"
#include "compiler/extend/token_reader.h"

namespace stridec::extend {
namespace {

constexpr int kMaxDepth = 100;        // of nested expressions and statements
constexpr int kMostOperators = 1000;  // between operands of a statement: they nest in the tree as chains

constexpr std::string_view kTypes[] = {"void",     "bool",    "_Bool",    "char",    "short",    "int",
                                       "long",     "float",   "double",   "signed",  "unsigned", "int8_t",
                                       "int16_t",  "int32_t", "int64_t",  "uint8_t", "uint16_t", "uint32_t",
                                       "uint64_t", "size_t",  "_Float16", "half",    "bfloat16"};
constexpr std::string_view kRefused[] = {"while",    "do",      "switch", "goto",    "break",
                                         "continue", "struct",  "union",  "static",  "extern",
                                         "sizeof",   "typedef", "enum",   "volatile"};

struct Token {
  enum class Kind { kName, kInteger, kReal, kSign, kEnd };
  Kind kind = Kind::kEnd;
  std::string text, suffix;
  Position at;
};

// Without the copies of an initializer list.
template <class... Each>
std::vector<CExpression> list_of(Each... each) {
  std::vector<CExpression> out;
  out.reserve(sizeof...(each));
  (out.push_back(std::move(each)), ...);
  return out;
}

class Parser : TokenReader<Token> {
 public:
  Parser(const std::string& text, const std::string& place, const std::vector<std::string>& types)
      : text_(text), place_(place), types_(types) {
    while (next_token()) {
    }
  }

  CFunction function() {
    CFunction made{.text = text_, .place = place_};
    while (accept("static") || accept("inline")) {
    }
    made.result = type();
    made.name = word();
    expect("(");
    if (is("void") && peek(1).text == ")") ++at_;
    while (!is(")")) {
      made.parameters.push_back(parameter());
      if (!accept(",")) break;
    }
    expect(")");
    made.body = block();
    if (token().kind != Token::Kind::kEnd) error("expected one function and nothing after it");
    return made;
  }

 private:
  [[noreturn]] void error(const std::string& what) const { error(what, token().at); }
  [[noreturn]] void error(const std::string& what, Position at) const {
    rule_error(text_, place_, at, what, "docs/operators.md says which part of C a point is written in");
  }

  // ---- tokens
  bool next_token() {
    skip_space();
    Token token{.at = {line_, static_cast<int>(pos_ - line_begin_) + 1}};
    if (pos_ >= text_.size()) {
      tokens_.push_back(token);
      return false;
    }
    const char c = text_[pos_];
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      token.kind = Token::Kind::kName;
      while (pos_ < text_.size() && in_name(text_[pos_])) token.text += text_[pos_++];
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '.' && pos_ + 1 < text_.size() &&
                std::isdigit(static_cast<unsigned char>(text_[pos_ + 1])))) {
      number(token);
    } else {
      token.kind = Token::Kind::kSign;
      sign(token);
    }
    tokens_.push_back(std::move(token));
    return true;
  }
  static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  void skip_space() {
    const auto newline = [&] { ++line_, line_begin_ = pos_ + 1; };
    while (pos_ < text_.size()) {
      if (text_.compare(pos_, 2, "//") == 0) {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (text_.compare(pos_, 2, "/*") == 0) {
        const size_t end = text_.find("*/", pos_ + 2);
        for (const size_t stop = end == std::string::npos ? text_.size() : end + 2; pos_ < stop; ++pos_)
          if (text_[pos_] == '\n') newline();
      } else if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        if (text_[pos_] == '\n') newline();
        ++pos_;
      } else {
        return;
      }
    }
  }

  // Decimal and hexadecimal, with exponents and suffixes.
  void number(Token& token) {
    const char* begin = text_.c_str() + pos_;
    const bool hex = begin[0] == '0' && (begin[1] == 'x' || begin[1] == 'X');
    char* end = nullptr;
    std::strtod(begin, &end);
    token.text = std::string(begin, static_cast<size_t>(end - begin));
    const char* real = hex ? ".pP" : ".eE";
    token.kind =
        token.text.find_first_of(real) == std::string::npos ? Token::Kind::kInteger : Token::Kind::kReal;
    pos_ += token.text.size();
    while (pos_ < text_.size() && in_name(text_[pos_]))
      token.suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(text_[pos_++])));
    static constexpr std::string_view kReal[] = {"", "f"},
                                      kInteger[] = {"", "u", "l", "ul", "lu", "ll", "ull", "llu"};
    const bool fits = token.kind == Token::Kind::kReal ? std::ranges::count(kReal, token.suffix) > 0
                                                       : std::ranges::count(kInteger, token.suffix) > 0;
    if (!fits) error(cat("'", token.text, token.suffix, "' is not a number"), token.at);
  }

  void sign(Token& token) {
    static constexpr std::string_view kSigns[] = {
        "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
        "++",  "--",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};
    for (const std::string_view each : kSigns)
      if (text_.compare(pos_, each.size(), each) == 0) {
        token.text = each;
        pos_ += each.size();
        return;
      }
    if (std::string_view("+-*/%<>=()[]{},;?:&|^~!").find(text_[pos_]) == std::string_view::npos)
      error(text_[pos_] == '\''  ? "character literals are not in the subset of C"
            : text_[pos_] == '"' ? "texts are not in the subset of C"
                                 : cat("'", text_[pos_], "' is not in the subset of C"),
            token.at);
    token.text = text_[pos_++];
  }

  // ---- syntax
  const Token& peek(size_t ahead) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  void expect(std::string_view text) {
    if (!accept(text))
      error(cat("expected '", text, "', not ",
                token().kind == Token::Kind::kEnd ? "the end" : cat("'", token().text, "'")));
  }
  std::string word() {
    if (token().kind != Token::Kind::kName || is_type(token().text)) error("expected a name");
    if (std::ranges::count(kRefused, token().text) > 0)
      error(cat("'", token().text, "' is not in the subset of C"));
    return tokens_[at_++].text;
  }
  bool is_type(std::string_view name) const {
    return is_c_type(name) || std::ranges::count(types_, name) > 0;
  }
  bool type_follows(size_t ahead = 0) const {
    const Token& next = peek(ahead);
    return next.kind == Token::Kind::kName && (next.text == "const" || is_type(next.text));
  }

  // "unsigned long" and the like as the types of stdint.h.
  std::string type() {
    while (accept("const")) {
    }
    if (!type_follows()) error("expected a type");
    std::vector<std::string> words;
    while (token().kind == Token::Kind::kName && is_type(token().text)) words.push_back(tokens_[at_++].text);
    while (accept("const")) {
    }
    if (words.size() == 1 && words[0] != "unsigned" && words[0] != "signed") return words[0];
    const auto has = [&](std::string_view word) { return std::ranges::count(words, word) > 0; };
    for (const std::string& word : words)
      if (word != "unsigned" && word != "signed" && word != "int" && word != "long" && word != "short" &&
          word != "char")
        error(cat("'", join(words, " "), "' is not a type"));
    const std::string bits = has("char") ? "8" : has("short") ? "16" : has("long") ? "64" : "32";
    return cat(has("unsigned") ? "uint" : "int", bits, "_t");
  }

  CParameter parameter() {
    CParameter made{.at = token().at};
    made.type = type();
    made.pointer = accept("*");
    if (made.type == "void") error("a parameter must have a type", made.at);
    accept("restrict"), accept("__restrict"), accept("__restrict__");
    made.name = word();
    for (; accept("["); ++made.indices) {
      if (!is("]")) expression();
      expect("]");
    }
    if (made.indices > 0) arrays_[made.name] = made.indices;
    return made;
  }

  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxDepth) parser.error("the text is nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  std::vector<CStatement> block() {
    std::vector<CStatement> out;
    expect("{");
    while (!is("}")) {
      if (token().kind == Token::Kind::kEnd) error("'}' is missing");
      statement(out);
    }
    expect("}");
    return out;
  }

  std::vector<CStatement> single() {
    std::vector<CStatement> out;
    statement(out);
    return out;
  }

  void statement(std::vector<CStatement>& out) {
    const Deeper deeper(*this);
    operators_ = 0;
    CStatement made{.at = token().at};
    if (accept(";")) return;
    if (is("{")) {
      made.body = block();
    } else if (accept("if")) {
      made.kind = CStatement::Kind::kIf;
      expect("(");
      made.value = list_of(expression());
      expect(")");
      made.body = single();
      if (accept("else")) made.otherwise = single();
    } else if (accept("for")) {
      made.kind = CStatement::Kind::kFor;
      expect("(");
      if (!is(";")) simple(made.first);
      expect(";");
      if (is(";")) error("a loop needs a condition");
      made.value = list_of(expression());
      expect(";");
      while (!is(")")) {
        simple(made.otherwise);
        if (!accept(",")) break;
      }
      expect(")");
      made.body = single();
    } else if (accept("return")) {
      made.kind = CStatement::Kind::kReturn;
      if (!is(";")) made.value = list_of(expression());
      expect(";");
    } else {
      simple(out);
      return expect(";");
    }
    out.push_back(std::move(made));
  }

  // A declaration or an assignment, without its end.
  void simple(std::vector<CStatement>& out) {
    if (type_follows()) {
      const std::string type = this->type();
      if (type == "void") error("a variable needs a type");
      do {
        CStatement made{.kind = CStatement::Kind::kDeclare, .type = type, .at = token().at};
        if (is("*")) error("pointers are not in the subset of C, but for outputs among the parameters");
        made.name = word();
        if (is("[")) error("arrays are not in the subset of C");
        if (accept("=")) made.value = list_of(expression());
        out.push_back(std::move(made));
      } while (accept(","));
      return;
    }
    CStatement made{.kind = CStatement::Kind::kAssign, .at = token().at};
    const bool before = is("++") || is("--");
    const std::string step = before ? tokens_[at_++].text : "";
    const bool output = !before && accept("*");
    made.name = cat(output ? "*" : "", word());
    CExpression self{.kind = CExpression::Kind::kName, .name = made.name, .at = made.at};
    const auto computed = [&](std::string sign, CExpression right) {
      return CExpression{.kind = CExpression::Kind::kBinary,
                         .name = std::move(sign),
                         .args = list_of(self, std::move(right)),
                         .at = made.at};
    };
    const CExpression one{.integer = 1, .at = made.at};
    if (before || is("++") || is("--")) {
      const std::string sign = before ? step : tokens_[at_++].text;
      made.value = list_of(computed(sign.substr(0, 1), one));
    } else if (accept("=")) {
      made.value = list_of(expression());
    } else {
      const std::string sign = token().text;
      if (token().kind != Token::Kind::kSign || sign.size() < 2 || sign.back() != '=' || sign == "==" ||
          sign == "!=" || sign == "<=" || sign == ">=")
        error(cat("expected an assignment, not '", sign, "'"));
      ++at_;
      made.value = list_of(computed(sign.substr(0, sign.size() - 1), expression()));
    }
    out.push_back(std::move(made));
  }

  // ---- expressions, by precedence
  CExpression expression() {
    const Deeper deeper(*this);
    CExpression condition = binary(0);
    if (!is("?")) return condition;
    CExpression made{.kind = CExpression::Kind::kChoice, .at = tokens_[at_++].at};
    CExpression yes = expression();
    expect(":");
    CExpression no = expression();
    made.args = list_of(std::move(condition), std::move(yes), std::move(no));
    return made;
  }

  CExpression binary(size_t level) {
    static const std::vector<std::vector<std::string_view>> kLevels = {
        {"||"},       {"&&"},     {"|"},          {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="},
        {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == kLevels.size()) return unary();
    CExpression left = binary(level + 1);
    for (;;) {
      const auto sign = std::ranges::find_if(kLevels[level], [&](std::string_view s) { return is(s); });
      if (sign == kLevels[level].end()) return left;
      if (++operators_ > kMostOperators)
        error(cat("a statement has more than ", kMostOperators, " operators; write it as several"));
      CExpression made{
          .kind = CExpression::Kind::kBinary, .name = std::string(*sign), .at = tokens_[at_++].at};
      CExpression right = binary(level + 1);
      made.args = list_of(std::move(left), std::move(right));
      left = std::move(made);
    }
  }

  CExpression unary() {
    const Deeper deeper(*this);
    const Position at = token().at;
    for (const std::string_view sign : {"-", "+", "!", "~", "*"})
      if (accept(sign)) {
        if (sign == "*") return {.kind = CExpression::Kind::kName, .name = cat("*", word()), .at = at};
        CExpression of = unary();
        return {.kind = CExpression::Kind::kUnary,
                .name = std::string(sign),
                .args = list_of(std::move(of)),
                .at = at};
      }
    if (is("(") && type_follows(1)) {
      ++at_;
      CExpression made{.kind = CExpression::Kind::kCast, .name = type(), .at = at};
      expect(")");
      made.args = list_of(unary());
      return made;
    }
    return atom();
  }

  CExpression atom() {
    const Token first = token();
    if (accept("(")) {
      CExpression inner = expression();
      expect(")");
      return inner;
    }
    if (first.kind == Token::Kind::kInteger || first.kind == Token::Kind::kReal) {
      ++at_;
      return literal(first);
    }
    CExpression made{.kind = CExpression::Kind::kName, .name = word(), .at = first.at};
    if (is("[")) return load(std::move(made));
    if (!accept("(")) return made;
    made.kind = CExpression::Kind::kCall;
    while (!is(")")) {
      made.args.push_back(expression());
      if (!accept(",")) break;
    }
    expect(")");
    return made;
  }

  CExpression load(CExpression made) {
    made.kind = CExpression::Kind::kLoad;
    const auto array = arrays_.find(made.name);
    if (array == arrays_.end()) error(cat("'", made.name, "' is not an array among the parameters"), made.at);
    while (accept("[")) {
      made.args.push_back(expression());
      expect("]");
    }
    if (made.args.size() != static_cast<size_t>(array->second))
      error(cat("'", made.name, "' has ", array->second, array->second == 1 ? " dim" : " dims",
                ", but is read with ", made.args.size(), made.args.size() == 1 ? " index" : " indices"),
            made.at);
    return made;
  }

  CExpression literal(const Token& from) const {
    CExpression made{.suffix = from.suffix, .real = from.kind == Token::Kind::kReal, .at = from.at};
    if (made.real) {
      made.number = std::strtod(from.text.c_str(), nullptr);
      return made;
    }
    const bool hex =
        from.text.size() > 2 && from.text[0] == '0' && (from.text[1] == 'x' || from.text[1] == 'X');
    const bool octal = !hex && from.text.size() > 1 && from.text[0] == '0';
    uint64_t value = 0;
    const char *begin = from.text.data() + (hex ? 2 : 0), *end = from.text.data() + from.text.size();
    made.base = hex ? 16 : octal ? 8 : 10;
    const auto [stop, status] = std::from_chars(begin, end, value, made.base);
    if (status != std::errc() || stop != end)
      error(cat("'", from.text, "' is not an integer of 64 bits"), from.at);
    if (made.base == 10 && value > INT64_MAX && from.suffix.find('u') == std::string::npos)
      error(cat("'", from.text, "' is not a signed integer of 64 bits; write ", from.text, "u"), from.at);
    made.integer = static_cast<int64_t>(value);
    return made;
  }

  const std::string &text_, &place_;
  const std::vector<std::string>& types_;
  std::map<std::string, int> arrays_;
  size_t pos_ = 0, line_begin_ = 0;
  int line_ = 1, depth_ = 0, operators_ = 0;
};

}  // namespace

bool is_c_type(std::string_view name) { return std::ranges::count(kTypes, name) > 0; }

CFunction parse_c_function(const std::string& text, const std::string& place,
                           const std::vector<std::string>& types) {
  return Parser(text, place, types).function();
}

}  // namespace stridec::extend
