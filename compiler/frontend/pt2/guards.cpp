#include "compiler/frontend/pt2/guards.h"

#include <charconv>

#include "compiler/base/diagnostic.h"

namespace stridec::pt2 {
namespace {

constexpr size_t kLongest = 10'000;
constexpr int kDeepest = 64;
constexpr uint32_t kLargestExpression = 5'000;

struct NotAGuard {};

class Parser {
 public:
  Parser(std::string_view text, const GuardLookup& lookup) : text_(text), lookup_(lookup) {}

  sym::Expr run() {
    const sym::Expr out = disjunction(0);
    spaces();
    if (at_ != text_.size()) throw NotAGuard();
    return out;
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    spaces();
    if (text_.substr(at_, token.size()) != token) return false;
    const bool word = isalpha(static_cast<unsigned char>(token[0]));
    const size_t end = at_ + token.size();
    if (word && end < text_.size() && (isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_'))
      return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) throw NotAGuard();
  }
  int64_t integer() {
    spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) throw NotAGuard();
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  static sym::Expr limited(sym::Expr e) {
    if (e.size() > kLargestExpression) throw NotAGuard();
    return e;
  }

  sym::Expr disjunction(int depth) {
    if (depth > kDeepest) throw NotAGuard();
    sym::Expr out = conjunction(depth);
    while (take("or")) out = limited(sym::logical_or(out, conjunction(depth)));
    return out;
  }
  sym::Expr conjunction(int depth) {
    sym::Expr out = negation(depth);
    while (take("and")) out = limited(sym::logical_and(out, negation(depth)));
    return out;
  }
  sym::Expr negation(int depth) {
    if (depth > kDeepest) throw NotAGuard();
    if (take("not")) return sym::logical_not(negation(depth + 1));
    return comparison(depth);
  }
  sym::Expr comparison(int depth) {
    sym::Expr left = sum(depth);
    std::optional<sym::Expr> all;
    while (true) {
      sym::Expr (*compare)(sym::Expr, sym::Expr) = nullptr;
      if (take("=="))
        compare = static_cast<sym::Expr (*)(sym::Expr, sym::Expr)>(sym::eq);
      else if (take("!="))
        compare = static_cast<sym::Expr (*)(sym::Expr, sym::Expr)>(sym::ne);
      else if (take("<="))
        compare = sym::le;
      else if (take(">="))
        compare = sym::ge;
      else if (take("<"))
        compare = sym::lt;
      else if (take(">"))
        compare = sym::gt;
      if (!compare) return all.value_or(left);
      const sym::Expr right = sum(depth), one = compare(left, right);
      all = limited(all ? sym::logical_and(*all, one) : one);
      left = right;
    }
  }
  sym::Expr sum(int depth) {
    sym::Expr out = product(depth);
    while (true) {
      if (take("+"))
        out = limited(out + product(depth));
      else if (take("-"))
        out = limited(out - product(depth));
      else
        return out;
    }
  }
  sym::Expr product(int depth) {
    sym::Expr out = factor(depth);
    while (true) {
      if (take("//"))
        out = limited(sym::floordiv(out, factor(depth)));
      else if (text_.substr(at_).starts_with("**"))
        throw NotAGuard();
      else if (take("*"))
        out = limited(out * factor(depth));
      else if (take("%"))
        out = limited(sym::mod(out, factor(depth)));
      else
        return out;
    }
  }
  sym::Expr factor(int depth) {
    if (depth > kDeepest) throw NotAGuard();
    spaces();
    if (take("-")) return -factor(depth + 1);
    if (take("(")) {
      const sym::Expr out = disjunction(depth + 1);
      expect(")");
      return out;
    }
    if (take("True")) return 1;
    if (take("False")) return 0;
    const bool max = take("torch.sym_max") || take("max"),
               min = !max && (take("torch.sym_min") || take("min"));
    if (max || min) {
      expect("(");
      sym::Expr out = disjunction(depth + 1);
      while (take(",")) {
        const sym::Expr next = disjunction(depth + 1);
        out = limited(max ? sym::max(out, next) : sym::min(out, next));
      }
      expect(")");
      return out;
    }
    if (at_ < text_.size() && isdigit(static_cast<unsigned char>(text_[at_]))) return integer();
    return input();
  }
  sym::Expr input() {
    expect("L");
    std::vector<std::string> path;
    while (take("[")) {
      spaces();
      const char quote = at_ < text_.size() ? text_[at_] : 0;
      if (quote == '\'' || quote == '"') {
        const size_t end = text_.find(quote, at_ + 1);
        if (end == std::string_view::npos) throw NotAGuard();
        path.emplace_back(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
      } else {
        path.push_back(std::to_string(integer()));
      }
      expect("]");
    }
    if (path.empty()) throw NotAGuard();
    std::optional<int64_t> dim;
    if (take(".size()[")) {
      dim = integer();
      expect("]");
    }
    const auto out = lookup_(path, dim);
    if (!out) throw NotAGuard();
    return *out;
  }

  std::string_view text_;
  const GuardLookup& lookup_;
  size_t at_ = 0;
};

}  // namespace

std::optional<sym::Expr> parse_guard(std::string_view text, const GuardLookup& lookup) {
  if (text.size() > kLongest) return std::nullopt;
  try {
    return Parser(text, lookup).run();
  } catch (const NotAGuard&) {
    return std::nullopt;
  } catch (const Error&) {  // a constant that leaves 64 bits
    return std::nullopt;
  }
}

bool is_layout_guard(std::string_view text) {
  while (text.ends_with(" ")) text.remove_suffix(1);
  const bool one = text.ends_with("!= 1");
  return one && text.find(" and ") == std::string_view::npos && text.find(" or ") == std::string_view::npos;
}

}  // namespace stridec::pt2
