#include "compiler/frontend/aten/user_call.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::aten {
namespace {

std::optional<graph::AttributeValue> list_value(const std::vector<Value>& items) {
  const auto all = [&](auto... kinds) {
    return std::ranges::all_of(items, [&](const Value& v) { return ((v.kind == kinds) || ...); });
  };
  if (all(Value::Kind::kInt, Value::Kind::kBool)) {
    std::vector<sym::Expr> list;
    for (const Value& item : items) list.push_back(item.integer);
    return list;
  }
  if (!all(Value::Kind::kFloat)) return std::nullopt;
  std::vector<double> list;
  for (const Value& item : items) list.push_back(item.number);
  return list;
}

// None: the value is not an attribute.
std::optional<graph::AttributeValue> attribute_value(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kInt:
    case Value::Kind::kBool: return value.integer;
    case Value::Kind::kFloat: return value.number;
    case Value::Kind::kString:
    case Value::Kind::kOther: return value.text;
    case Value::Kind::kDType: return value.dtype;
    case Value::Kind::kList: return list_value(value.items);
    default: return std::nullopt;
  }
}

}  // namespace

Results call_user(Builder& b, const graph::UserOperators& operators, const std::string& name,
                  const std::vector<NamedValue>& arguments, size_t outputs) {
  graph::OperatorCall call{.name = name, .arguments = {}, .outputs = outputs};
  for (const auto& [argument, value] : arguments) {
    call.arguments.push_back({.name = argument, .tensor = {}, .value = {}});
    if (value.is_none()) continue;
    if (value.is_tensor() && !value.tensor.complex) {
      call.arguments.back().tensor = read(b, value.tensor).id();
      continue;
    }
    call.arguments.back().value = attribute_value(value);
    if (!call.arguments.back().value)
      fail(ErrorKind::kUnsupported, "unsupported-argument",
           cat(name, ": argument '", argument,
               "' is neither a real tensor, a number, a text nor a list of numbers"));
  }
  Results results;
  for (const graph::ValueId value : operators.build(b, call)) results.emplace_back(Term(b, value));
  return results;
}

graph::UnknownCall unknown_call(Builder& b, const std::string& name,
                                const std::vector<NamedValue>& arguments) {
  graph::UnknownCall call{.name = name, .node = b.origin(), .arguments = {}, .results = {}};
  for (const auto& [argument, value] : arguments) {
    graph::UnknownCall::Argument made{.name = argument, .type = {}, .tensor = value.is_tensor(), .value = {}};
    if (value.is_tensor())
      made.type = b.type(read(b, value.tensor).id());
    else if (value.kind == Value::Kind::kFailed)
      made.tensor = true;
    else
      made.value = attribute_value(value);
    call.arguments.push_back(std::move(made));
  }
  return call;
}

}  // namespace stridec::aten
