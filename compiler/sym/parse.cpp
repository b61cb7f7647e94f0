#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/parse_names.h"
#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

constexpr int kMaxNesting = 600;  // three levels for a pair of parentheses
constexpr size_t kMaxText = 64 * 1024;
constexpr size_t kMaxArguments = 256;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expr whole() {
    if (text_.size() > kMaxText) error("the expression is longer than 64 KiB");
    Expr e = any();
    space();
    if (at_ != text_.size()) error("expected an operator or the end");
    return e;
  }

 private:
  [[noreturn]] void error(std::string_view what) {
    std::string shown(text_.substr(at_, 16));
    fail(ErrorKind::kMalformed, "bad-expression",
         cat("in the expression '", text_.substr(0, 80), text_.size() > 80 ? "...'" : "'", ", column ",
             at_ + 1, ": ", what, shown.empty() ? "" : ", not '" + shown + "'"));
  }

  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(std::string_view token) {
    space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) error(cat("expected '", token, "'"));
  }

  struct Nested {
    Parser& parser;
    explicit Nested(Parser& p) : parser(p) {
      if (++parser.depth_ > kMaxNesting) parser.error("nested too deeply");
    }
    ~Nested() { --parser.depth_; }
  };

  Expr any() {
    Nested nested(*this);
    std::vector<Expr> args{conjunction()};
    while (take("||")) args.push_back(conjunction());
    return args.size() == 1 ? args[0] : logical_or(limited(args));
  }

  Expr conjunction() {
    std::vector<Expr> args{negation()};
    while (take("&&")) args.push_back(negation());
    return args.size() == 1 ? args[0] : logical_and(limited(args));
  }

  Expr negation() {
    Nested nested(*this);
    space();
    bool inverted = text_.substr(at_).starts_with('!') && !text_.substr(at_).starts_with("!=");
    if (!inverted) return comparison();
    ++at_;
    return logical_not(negation());
  }

  Expr comparison() {
    Expr a = addition();
    if (take("==")) return eq(a, addition());
    if (take("!=")) return ne(a, addition());
    if (take("<=")) return le(a, addition());
    if (take(">=")) return ge(a, addition());
    if (take("<")) return lt(a, addition());
    if (take(">")) return gt(a, addition());
    return a;
  }

  Expr addition() {
    Expr total = multiplication();
    for (;;) {
      if (take("+")) {
        total += multiplication();
      } else if (take("-")) {
        total -= multiplication();
      } else {
        return total;
      }
    }
  }

  Expr multiplication() {
    std::vector<Expr> factors{unary()};
    for (;;) {
      if (take("//")) {
        Expr divisor = unary();
        factors = {floordiv(product(factors), divisor)};
      } else if (take("*")) {
        factors.push_back(unary());
      } else {
        return factors.size() == 1 ? factors[0] : product(limited(factors));
      }
    }
  }

  Expr unary() {
    Nested nested(*this);
    if (!take("-")) return atom();
    space();
    if (at_ < text_.size() && digit(text_[at_])) return integer(true);
    return -unary();
  }

  Expr atom() {
    space();
    if (at_ == text_.size()) error("the expression ends too early");
    char c = text_[at_];
    if (digit(c)) return integer(false);
    if (take("(")) {
      Expr e = any();
      expect(")");
      return e;
    }
    if (c == '`') return quoted();
    size_t begin = at_;
    if (c == '%') ++at_;
    while (at_ < text_.size() &&
           (is_plain_name(text_.substr(at_, 1)) || (at_ > begin && (digit(text_[at_]) || text_[at_] == '.'))))
      ++at_;
    std::string_view name = text_.substr(begin, at_ - begin);
    if (!is_plain_name(c == '%' ? name.substr(1) : name)) {
      at_ = begin;
      error("expected a number, a name or '('");
    }
    if (is_function_name(name) && take("(")) return call(name);
    return var(name);
  }

  Expr call(std::string_view name) {
    std::vector<Expr> args{any()};
    while (take(",")) args.push_back(any());
    expect(")");
    limited(args);
    if (name == "min") return min(args);
    if (name == "max") return max(args);
    size_t wanted = name == "select" ? 3 : name == "abs" ? 1 : 2;
    if (args.size() != wanted) error(cat("'", name, "' takes ", wanted, " operands"));
    if (name == "select") return select(args[0], args[1], args[2]);
    if (name == "mod") return mod(args[0], args[1]);
    if (name == "floordiv") return floordiv(args[0], args[1]);
    if (name == "ceildiv") return ceildiv(args[0], args[1]);
    if (name == "align_up") return align_up(args[0], args[1]);
    return abs(args[0]);
  }

  const std::vector<Expr>& limited(const std::vector<Expr>& args) {
    if (args.size() > kMaxArguments) error("more than 256 operands");
    return args;
  }

  Expr quoted() {
    std::string name;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) error("a closing backtick is missing");
      if (text_[at_] == '`') {
        ++at_;
        if (at_ >= text_.size() || text_[at_] != '`') break;
      }
      name += text_[at_];
    }
    if (name.empty()) error("a name is empty");
    return var(name);
  }

  static bool digit(char c) { return c >= '0' && c <= '9'; }

  Expr integer(bool negative) {
    size_t end = at_;
    while (end < text_.size() && digit(text_[end])) ++end;
    std::string number = (negative ? "-" : "") + std::string(text_.substr(at_, end - at_));
    int64_t value = 0;
    auto [last, status] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (status != std::errc{} || last != number.data() + number.size())
      error("the number does not fit in 64 bits");
    at_ = end;
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expr parse(std::string_view text) { return Parser(text).whole(); }

}  // namespace stridec::sym
