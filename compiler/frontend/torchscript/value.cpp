#include "compiler/frontend/torchscript/value.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::torchscript {
namespace {

using Kind = Value::Kind;

std::string printed_float(double n) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, n).ptr;
  std::string out(text, end);
  if (out.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
  return out;
}

using Print = std::function<std::string(const Value&)>;

std::string printed_items(const Print& print, const std::vector<Value>& items, const char* open,
                          const char* close) {
  return cat(open,
             join(items, ", ",
                  [&](const Value& v) { return v.is(Kind::kString) ? cat("'", v.text, "'") : print(v); }),
             close);
}

constexpr char kMark = '\x1a';

// Replaces what stands between two marks.
std::string replace_marked(const std::string& text,
                           const std::function<std::string(const std::string&)>& by) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t open = text.find(kMark, at);
    const size_t close = open == std::string::npos ? open : text.find(kMark, open + 1);
    if (close == std::string::npos) return out + text.substr(at);
    out += text.substr(at, open - at) + by(text.substr(open + 1, close - open - 1));
    at = close + 1;
  }
}

std::string printed_by(const Print& print, const Value& value) {
  switch (value.kind) {
    case Kind::kNone: return "None";
    case Kind::kInt: return sym::to_string(value.integer);
    case Kind::kBool:
      if (value.integer.is_const()) return value.integer.value() ? "True" : "False";
      return sym::to_string(value.integer);
    case Kind::kFloat: return printed_float(value.number);
    case Kind::kComplex:
      return cat("(", printed_float(value.number), "+", printed_float(value.imaginary), "j)");
    case Kind::kString:
    case Kind::kDevice:
    case Kind::kEnum: return value.text;
    case Kind::kList: return printed_items(print, value.items(), "[", "]");
    case Kind::kTuple:
      return printed_items(print, value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    default: return cat("<", kind_name(value), ">");
  }
}

}  // namespace

std::string kind_name(const Value& value) {
  switch (value.kind) {
    case Kind::kNone: return "None";
    case Kind::kFailed: return "no value";
    case Kind::kUnset: return value.text.empty() ? "no value" : value.text;
    case Kind::kTensor: return value.tensor.wrapped ? "a float of the run" : "a tensor";
    case Kind::kInt: return "an integer";
    case Kind::kBool: return "a bool";
    case Kind::kFloat: return "a float";
    case Kind::kComplex: return "a complex number";
    case Kind::kString: return "a string";
    case Kind::kDevice: return "a device";
    case Kind::kList: return "a list";
    case Kind::kTuple: return "a tuple";
    case Kind::kDict: return "a dict";
    case Kind::kObject:
      return cat("an object of ", value.object->type ? value.object->type->name : "no class");
    case Kind::kEnum: return "an enum";
    case Kind::kFunction:
    case Kind::kMethod: return "a function";
    case Kind::kStored: return "a tensor";
  }
  return "";
}

void expect_known(const Value& value) {
  if (value.sequence && value.sequence->stale)
    fail(ErrorKind::kUnsupported, "unsupported-alias",
         "a list that is read may be one that was changed under another name, which data decide",
         "copy the list before it is changed: x = x.copy()");
}

bool has_failed(const Value& value) {
  if (value.is_failed()) return true;
  if (value.sequence && std::ranges::any_of(value.items(), has_failed)) return true;
  return value.dict && std::ranges::any_of(value.dict->items, [](const auto& item) {
           return has_failed(item.first) || has_failed(item.second);
         });
}

std::string printed(const Value& value) { return printed_by(printed, value); }

std::string marked(const Value& value) {
  if (!value.is_whole() || value.integer.is_const()) return printed_by(marked, value);
  return kMark + sym::to_string(value.integer) + kMark;
}

std::string unmarked(const std::string& text) {
  return replace_marked(text, [](const std::string& expression) { return expression; });
}

std::string guard_sentence(const std::string& text, const std::function<bool(sym::Expr)>& known,
                           std::vector<sym::Expr>& values) {
  // A placeholder has no brace of its own in the program's text, whose braces are doubled.
  return replace_marked(sym::escaped(text), [&](const std::string& expression) {
    const sym::Expr value = sym::parse(expression);
    if (!known(value)) return std::string("a number of the run");
    values.push_back(value);
    return cat("{", values.size() - 1, "}");
  });
}

std::optional<sym::Expr> equal(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return sym::eq(a.integer, b.integer);
  const auto constant = [](const Value& v) -> std::optional<double> {
    if (v.is(Kind::kFloat)) return v.number;
    if (v.is_whole() && v.integer.is_const()) return static_cast<double>(v.integer.value());
    return std::nullopt;
  };
  if (const auto x = constant(a), y = constant(b); x && y) return *x == *y;
  if (a.is_number() || b.is_number() || a.is(Kind::kTensor) || b.is(Kind::kTensor)) {
    const bool other = !(a.is_number() && b.is_number()) && !a.is(Kind::kTensor) && !b.is(Kind::kTensor);
    return other ? std::optional<sym::Expr>(0) : std::nullopt;
  }
  if (a.kind != b.kind) return 0;
  if (a.is(Kind::kString) || a.is(Kind::kDevice) || a.is(Kind::kEnum) || a.is(Kind::kFunction))
    return a.text == b.text;
  if (a.is(Kind::kObject)) return a.object == b.object;
  if (a.is_none()) return 1;
  if (!a.sequence || !b.sequence) return std::nullopt;
  if (a.items().size() != b.items().size()) return 0;
  sym::Expr all = 1;
  for (size_t i = 0; i < a.items().size(); ++i) {
    const auto one = equal(a.items()[i], b.items()[i]);
    if (!one) return std::nullopt;
    all = sym::logical_and(all, *one);
  }
  return all;
}

}  // namespace stridec::torchscript
