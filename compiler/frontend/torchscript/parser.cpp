#include "compiler/frontend/torchscript/parser.h"

#include <algorithm>
#include <limits>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/lexer.h"

namespace stridec::torchscript {
namespace {

using Kind = Expression::Kind;
using TokenKind = Token::Kind;

constexpr int kDeepest = 200;      // nesting of expressions and blocks
constexpr int kLongestChain = 64;  // of a.b.c and a + b + c, which are nested to the left

class Parser {
 public:
  Parser(std::string_view text, const std::string& module)
      : what_(cat("the source of '", module, "'")), tokens_(tokens_of(text, what_)) {
    out_.module = module;
  }

  Source run() {
    while (!is(TokenKind::kEnd)) {
      if (take("import")) {
        skip_to_newline();
      } else if (is_name("class")) {
        Class c = parse_class();
        out_.classes.insert_or_assign(c.name.substr(out_.module.size() + 1), std::move(c));
      } else if (is_name("def")) {
        Function f = parse_function();
        out_.functions.insert_or_assign(f.name, std::move(f));
      } else {
        bad("neither a class nor a function");
      }
    }
    return std::move(out_);
  }

 private:
  // ---- tokens
  const Token& now() const { return tokens_[at_]; }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool is_symbol(std::string_view text) const { return is(TokenKind::kSymbol) && now().text == text; }
  bool next_is_symbol(std::string_view text) const {
    return at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::kSymbol &&
           tokens_[at_ + 1].text == text;
  }
  bool take(std::string_view text) {
    if (!is_name(text) && !is_symbol(text)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) bad(cat("'", text, "' is missing"));
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) bad(cat(what, " is missing"));
    ++at_;
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) bad("a name is missing");
    return tokens_[at_++].text;
  }
  void skip_to_newline() {
    while (!is(TokenKind::kNewline) && !is(TokenKind::kEnd)) ++at_;
    if (is(TokenKind::kNewline)) ++at_;
  }
  [[noreturn]] void bad(const std::string& what) const {
    const std::string near = now().text.substr(0, 40);
    fail(ErrorKind::kMalformed, "bad-source",
         cat(what_, ", line ", now().line, ": ", what, near.empty() ? "" : cat(", at '", near, "'")));
  }
  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++p.depth_ > kDeepest) p.bad("it is nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  // ---- expressions
  Expression make(Kind kind) const {
    Expression e;
    e.kind = kind;
    e.line = now().line;
    e.position = now().position;
    return e;
  }

  Expression expression() {
    const Deeper deeper(*this);
    Expression left = unary();
    int length = 0;
    while (is_symbol("+") || is_symbol("-")) {
      if (++length > kLongestChain) bad("an expression is too long");
      Expression sum = make(Kind::kSum);
      const bool minus = is_symbol("-");
      ++at_;
      Expression right = unary();
      if (minus) right = negative(std::move(right));
      sum.items.push_back(std::move(left));
      sum.items.push_back(std::move(right));
      left = std::move(sum);
    }
    return left;
  }
  Expression negative(Expression of) const {
    Expression e = make(Kind::kNegative);
    e.items.push_back(std::move(of));
    return e;
  }
  Expression unary() {
    const Deeper deeper(*this);
    if (take("-")) return negative(unary());
    return postfix(primary());
  }

  Expression primary() {
    Expression e = make(Kind::kNone);
    const Token& t = now();
    switch (t.kind) {
      case TokenKind::kInteger:
        e.kind = Kind::kInteger;
        e.integer = t.integer;
        ++at_;
        return e;
      case TokenKind::kFloat:
      case TokenKind::kImaginary:
        e.kind = t.kind == TokenKind::kFloat ? Kind::kFloat : Kind::kImaginary;
        e.number = t.number;
        ++at_;
        return e;
      case TokenKind::kString:
        e.kind = Kind::kString;
        while (is(TokenKind::kString)) e.text += tokens_[at_++].text;
        return e;
      case TokenKind::kName: return word(std::move(e));
      default: return bracketed(std::move(e));
    }
  }
  Expression word(Expression e) {
    const std::string text = expect_name();
    if (text == "None") return e;
    if (text == "True" || text == "False") {
      e.kind = text == "True" ? Kind::kTrue : Kind::kFalse;
    } else if (text == "inf" || text == "nan") {
      e.kind = Kind::kFloat;
      e.number =
          text == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else {
      e.kind = Kind::kName;
      e.text = text;
    }
    return e;
  }
  Expression bracketed(Expression e) {
    if (take("(")) {
      if (take(")")) {
        e.kind = Kind::kTuple;
        return e;
      }
      Expression first = expression();
      if (take(")")) return first;
      e.kind = Kind::kTuple;
      e.items.push_back(std::move(first));
      while (take(",") && !is_symbol(")")) e.items.push_back(expression());
      expect(")");
    } else if (take("[")) {
      e.kind = Kind::kList;
      list_items(e, "]");
    } else if (take("{")) {
      e.kind = Kind::kDict;
      while (!take("}")) {
        e.items.push_back(expression());
        expect(":");
        e.items.push_back(expression());
        if (!is_symbol("}")) expect(",");
      }
    } else {
      bad("an expression is missing");
    }
    return e;
  }
  void list_items(Expression& e, std::string_view close) {
    while (!take(close)) {
      e.items.push_back(expression());
      if (!is_symbol(close)) expect(",");
    }
  }

  Expression postfix(Expression e) {
    int length = 0;
    while (true) {
      if (take(".")) {
        Expression out = make(Kind::kAttribute);
        out.text = expect_name();
        out.items.push_back(std::move(e));
        e = std::move(out);
      } else if (take("[")) {
        Expression out = make(Kind::kIndex), index = make(Kind::kTuple);
        list_items(index, "]");
        if (index.items.empty()) bad("an index is missing");
        out.items.push_back(std::move(e));
        if (index.items.size() == 1) index = Expression(std::move(index.items[0]));
        out.items.push_back(std::move(index));
        e = std::move(out);
      } else if (is_symbol("(")) {
        Expression out = make(Kind::kCall);
        ++at_;
        out.items.push_back(std::move(e));
        arguments(out);
        e = std::move(out);
      } else {
        return e;
      }
      if (++length > kLongestChain) bad("an expression is too long");
    }
  }
  void arguments(Expression& call) {
    while (!take(")")) {
      std::string name;
      if (is(TokenKind::kName) && next_is_symbol("=")) {
        name = expect_name();
        ++at_;
      }
      call.names.push_back(std::move(name));
      call.items.push_back(expression());
      if (!is_symbol(")")) expect(",");
    }
  }

  // ---- statements
  std::vector<Statement> block() {
    const Deeper deeper(*this);
    expect(":");
    expect(TokenKind::kNewline, "the end of the line");
    expect(TokenKind::kIndent, "an indented block");
    std::vector<Statement> out;
    while (!is(TokenKind::kDedent)) statement(out);
    ++at_;
    return out;
  }
  Statement begin(Statement::Kind kind) const {
    Statement s;
    s.kind = kind;
    s.line = now().line;
    return s;
  }
  void end_line() { expect(TokenKind::kNewline, "the end of the line"); }

  void statement(std::vector<Statement>& to) {
    using K = Statement::Kind;
    Statement s = begin(K::kEvaluate);
    if (take("pass")) {
      end_line();
      return;
    }
    if (is_name("return")) {
      ++at_;
      s.kind = K::kReturn;
      s.value = is(TokenKind::kNewline) ? make(Kind::kNone) : expressions();
      end_line();
    } else if (is_name("if")) {
      ++at_;
      s.kind = K::kIf;
      s.value = expression();
      s.body = block();
      if (take("else")) s.otherwise = block();
    } else if (is_name("while")) {
      ++at_;
      s.kind = K::kWhile;
      s.value = expression();
      s.body = block();
    } else if (is_name("for")) {
      ++at_;
      s.kind = K::kFor;
      s.targets.push_back(expect_name());
      expect("in");
      expect("range");
      expect("(");
      s.value = expression();
      expect(")");
      s.body = block();
    } else if (is_name("with")) {
      ++at_;
      s.kind = K::kWith;
      s.value = expression();
      s.body = block();
    } else if (is_name("def")) {
      ++at_;
      s.kind = K::kFunction;
      s.targets.push_back(expect_name());
      expect("(");
      expect(")");
      s.body = block();
    } else {
      assignment(s);
      end_line();
    }
    to.push_back(std::move(s));
  }

  // "a, b" without brackets is a tuple.
  Expression expressions() {
    Expression first = expression();
    if (!is_symbol(",")) return first;
    Expression out = make(Kind::kTuple);
    out.items.push_back(std::move(first));
    while (take(","))
      if (!is_symbol("=") && !is(TokenKind::kNewline)) out.items.push_back(expression());
    return out;
  }
  void assignment(Statement& s) {
    Expression left = expressions();
    if (take(":")) expression();  // the type says nothing that the value does not
    if (!take("=")) {
      s.value = std::move(left);
      return;
    }
    s.value = expressions();
    if (left.kind == Kind::kAttribute) {
      s.kind = Statement::Kind::kAttribute;
      s.targets.push_back(left.text);
      s.object = Expression(std::move(left.items[0]));
      return;
    }
    s.kind = Statement::Kind::kAssign;
    if (left.kind == Kind::kName) {
      s.targets.push_back(left.text);
      return;
    }
    if (left.kind != Kind::kTuple) bad("a value is assigned to something that is not a name");
    for (const Expression& item : left.items) {
      if (item.kind != Kind::kName) bad("a value is assigned to something that is not a name");
      s.targets.push_back(item.text);
    }
    // "a, = x" unpacks one value.
    s.unpacks = true;
  }

  // ---- functions and classes
  Function parse_function() {
    Function f;
    f.module = out_.module;
    f.line = now().line;
    expect("def");
    f.name = expect_name();
    expect("(");
    while (!take(")")) {
      take("*");
      Parameter p;
      p.name = expect_name();
      if (take(":")) {
        p.type = expression();
        p.typed = true;
      }
      if (take("=")) p.default_value = std::make_unique<Expression>(expression());
      f.parameters.push_back(std::move(p));
      if (!is_symbol(")")) expect(",");
    }
    if (take("->")) expression();
    f.body = block();
    return f;
  }

  Class parse_class() {
    Class c;
    expect("class");
    c.name = cat(out_.module, ".", expect_name());
    if (take("(")) {
      c.base = expect_name();
      expect(")");
    }
    expect(":");
    expect(TokenKind::kNewline, "the end of the line");
    expect(TokenKind::kIndent, "an indented block");
    while (!is(TokenKind::kDedent)) member(c);
    ++at_;
    return c;
  }
  void member(Class& c) {
    if (take("pass")) return end_line();
    if (is_name("def")) {
      Function f = parse_function();
      c.methods.insert_or_assign(f.name, std::move(f));
      return;
    }
    if (is_name("__parameters__") || is_name("__buffers__")) {
      auto& names = is_name("__parameters__") ? c.parameters : c.buffers;
      ++at_;
      expect("=");
      for (const Expression& item : expression().items) names.push_back(item.text);
      return end_line();
    }
    if (is_name("__annotations__")) {
      ++at_;
      expect("[");
      const Expression name = expression();
      expect("]");
      expect("=");
      c.attributes.emplace_back(name.text, expression());
      return end_line();
    }
    const std::string name = expect_name();
    if (take(":")) c.attributes.emplace_back(name, expression());
    if (take("=")) c.constants.insert_or_assign(name, expression());
    end_line();
  }

  const std::string what_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  Source out_;
};

}  // namespace

Source parse_source(std::string_view text, const std::string& module) { return Parser(text, module).run(); }

}  // namespace stridec::torchscript
