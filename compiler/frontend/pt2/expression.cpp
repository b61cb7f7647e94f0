#include "compiler/frontend/pt2/expression.h"

#include <charconv>
#include <vector>

#include "compiler/base/diagnostic.h"

namespace stridec::pt2 {
namespace {

constexpr size_t kLongestText = 20'000;
constexpr int kDeepest = 100;
constexpr uint32_t kLargestExpression = 5'000;  // nodes

// A rational number: sums of products of fractions have integer values.
struct Ratio {
  sym::Expr p;
  int64_t q = 1;
};

struct NotAnInteger {};

[[noreturn]] void give_up() { throw NotAnInteger(); }

int64_t checked(__int128 value) {
  if (value > INT64_MAX || value < INT64_MIN) give_up();
  return static_cast<int64_t>(value);
}

Ratio add(const Ratio& a, const Ratio& b) {
  if (a.q == b.q) return {a.p + b.p, a.q};
  return {a.p * b.q + b.p * a.q, checked(__int128{a.q} * b.q)};
}
Ratio multiply(const Ratio& a, const Ratio& b) { return {a.p * b.p, checked(__int128{a.q} * b.q)}; }

// Values that the program guarantees to be integers: the division is exact.
sym::Expr whole(const Ratio& r) { return r.q == 1 ? r.p : sym::floordiv(r.p, r.q); }

class Parser {
 public:
  Parser(std::string_view text, const SymbolLookup& lookup) : text_(text), lookup_(lookup) {}

  sym::Expr run() {
    const Ratio out = expression(0);
    spaces();
    if (at_ != text_.size()) give_up();
    return whole(out);
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) give_up();
  }
  std::string_view word() {
    spaces();
    const size_t start = at_;
    while (at_ < text_.size() && (isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    return text_.substr(start, at_ - start);
  }
  std::string quoted() {
    spaces();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) give_up();
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) give_up();
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  int64_t integer() {
    spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) give_up();
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  // Skips ", name=word" up to the closing parenthesis.
  void assumptions() {
    while (take(',')) {
      word();
      expect('=');
      word();
    }
    expect(')');
  }

  Ratio symbol() {
    const std::string name = quoted();
    assumptions();
    const auto meaning = lookup_(name);
    if (!meaning) give_up();
    return {*meaning};
  }

  bool take(std::string_view operation) {
    spaces();
    if (!text_.substr(at_).starts_with(operation)) return false;
    at_ += operation.size();
    return true;
  }

  // Sums, products and comparisons as Python writes them: files of PyTorch before 2.6 have str(expression).
  Ratio expression(int depth) {
    if (depth > kDeepest) give_up();
    const Ratio left = sum(depth);
    const auto right = [&] { return whole(sum(depth)); };
    if (take("==")) return {sym::eq(whole(left), right())};
    if (take("!=")) return {sym::ne(whole(left), right())};
    if (take("<=")) return {sym::le(whole(left), right())};
    if (take(">=")) return {sym::ge(whole(left), right())};
    if (take("<")) return {sym::lt(whole(left), right())};
    if (take(">")) return {sym::gt(whole(left), right())};
    return left;
  }
  Ratio limited(Ratio r) {
    if (r.p.size() > kLargestExpression) give_up();
    return r;
  }
  Ratio sum(int depth) {
    Ratio out = product(depth);
    while (true) {
      if (take("+"))
        out = limited(add(out, product(depth)));
      else if (take("-"))
        out = limited(add(out, multiply({-1}, product(depth))));
      else
        return out;
    }
  }
  Ratio product(int depth) {
    Ratio out = factor(depth);
    while (true) {
      if (take("//"))
        out = {divide(whole(out), whole(factor(depth)))};
      else if (take("%"))
        out = {sym::mod(whole(out), whole(factor(depth)))};
      else if (take("*"))
        out = multiply(out, factor(depth));
      else if (take("/"))
        out = multiply(out, power({factor(depth), {-1}}));
      else
        return limited(out);
    }
  }
  Ratio factor(int depth) {
    if (depth > kDeepest) give_up();
    if (take("-")) return multiply({-1}, factor(depth + 1));
    const Ratio base = atom(depth);
    return take("**") ? power({base, factor(depth + 1)}) : base;
  }

  Ratio atom(int depth) {
    spaces();
    if (at_ < text_.size() && isdigit(static_cast<unsigned char>(text_[at_]))) return {integer()};
    if (take('(')) {
      const Ratio inner = expression(depth + 1);
      expect(')');
      return inner;
    }
    const std::string name(word());
    if (name.empty()) give_up();
    if (name == "true" || name == "True") return {1};
    if (name == "false" || name == "False") return {0};
    if (!take('(')) {
      const auto meaning = lookup_(name);
      if (!meaning) give_up();
      return {*meaning};
    }
    if (name == "Symbol") return symbol();
    std::vector<Ratio> args;
    if (!take(')')) {
      do {
        args.push_back(expression(depth + 1));
        if (args.back().p.size() > kLargestExpression) give_up();
      } while (take(','));
      expect(')');
    }
    return call(name, args);
  }

  static void want(const std::vector<Ratio>& args, size_t count) {
    if (args.size() != count) give_up();
  }

  Ratio call(const std::string& name, const std::vector<Ratio>& args) {
    const auto arg = [&](size_t i) { return whole(args.at(i)); };
    const auto all = [&] {
      std::vector<sym::Expr> out;
      for (const Ratio& r : args) out.push_back(whole(r));
      return out;
    };
    const auto two = [&](auto&& f) -> Ratio {
      want(args, 2);
      return {f(arg(0), arg(1))};
    };
    if (name == "Integer" || name == "Identity" || name == "ToFloat" || name == "TruncToInt" ||
        name == "FloorToInt" || name == "Mul" || name == "Add") {
      if (args.empty()) give_up();
      Ratio out = args[0];
      if (name == "FloorToInt" || name == "TruncToInt") return {whole(out)};
      for (size_t i = 1; i < args.size(); ++i)
        out = name == "Add" ? add(out, args[i]) : multiply(out, args[i]);
      return out;
    }
    if (name == "Rational") {
      want(args, 2);
      if (!args[1].p.is_const() || args[1].p.value() < 1) give_up();
      return {args[0].p, args[1].p.value()};
    }
    if (name == "Pow" || name == "PowByNatural") return power(args);
    if (name == "FloorDiv" || name == "CleanDiv" || name == "IntTrueDiv") return two(divide);
    if (name == "CeilDiv" || name == "CeilToInt") {
      if (args.size() == 1) {
        if (args[0].q == 1) return args[0];
        return {sym::ceildiv(args[0].p, args[0].q)};
      }
      return two([](sym::Expr a, sym::Expr b) { return sym::floordiv(a + b - 1, b); });
    }
    if (name == "Mod" || name == "PythonMod")
      return two([](sym::Expr a, sym::Expr b) { return sym::mod(a, b); });
    if (name == "ModularIndexing") {
      want(args, 3);
      return {sym::mod(divide(arg(0), arg(1)), arg(2))};
    }
    if (name == "Where") {
      want(args, 3);
      return {sym::select(arg(0), arg(1), arg(2))};
    }
    if (name == "Max" && !args.empty()) return {sym::max(std::span<const sym::Expr>(all()))};
    if (name == "Min" && !args.empty()) return {sym::min(std::span<const sym::Expr>(all()))};
    if (name == "And") return {sym::logical_and(std::span<const sym::Expr>(all()))};
    if (name == "Or") return {sym::logical_or(std::span<const sym::Expr>(all()))};
    if (name == "Not") {
      want(args, 1);
      return {sym::logical_not(arg(0))};
    }
    if (name == "Equality" || name == "Eq")
      return two(static_cast<sym::Expr (*)(sym::Expr, sym::Expr)>(sym::eq));
    if (name == "Unequality" || name == "Ne")
      return two(static_cast<sym::Expr (*)(sym::Expr, sym::Expr)>(sym::ne));
    if (name == "StrictLessThan" || name == "Lt") return two(sym::lt);
    if (name == "LessThan" || name == "Le") return two(sym::le);
    if (name == "StrictGreaterThan" || name == "Gt") return two(sym::gt);
    if (name == "GreaterThan" || name == "Ge") return two(sym::ge);
    give_up();
  }

  static sym::Expr divide(sym::Expr a, sym::Expr b) { return sym::floordiv(a, b); }

  static Ratio power(const std::vector<Ratio>& args) {
    want(args, 2);
    const Ratio& base = args[0];
    if (args[1].q != 1 || !args[1].p.is_const()) give_up();
    const int64_t exponent = args[1].p.value();
    if (exponent == -1 && base.p.is_const() && base.p.value() >= 1 && base.q == 1) return {1, base.p.value()};
    if (exponent < 0 || exponent > 8) give_up();
    Ratio out{1};
    for (int64_t i = 0; i < exponent; ++i) out = multiply(out, base);
    return out;
  }

  std::string_view text_;
  const SymbolLookup& lookup_;
  size_t at_ = 0;
};

}  // namespace

std::optional<sym::Expr> parse_expression(std::string_view text, const SymbolLookup& lookup) {
  if (text.size() > kLongestText) return std::nullopt;
  try {
    return Parser(text, lookup).run();
  } catch (const NotAnInteger&) {
    return std::nullopt;
  } catch (const Error&) {  // a constant that leaves 64 bits
    return std::nullopt;
  }
}

}  // namespace stridec::pt2
