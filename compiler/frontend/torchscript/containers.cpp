// Lists, tuples and dicts. Lists and dicts are changed in place.
#include <algorithm>
#include <limits>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/builtins.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using Result = std::optional<Value>;

constexpr int64_t kLongestList = 1'000'000;

bool is_sequence(const Value& v) { return v.is(VK::kList) || v.is(VK::kTuple); }

std::vector<Value>& list_of(const Call& c) {
  c.e.touch(c.at(0));
  return c.at(0).sequence->items;
}

// A position in a sequence; negative ones count from the end.
size_t position(const Call& c, size_t argument, size_t size) {
  int64_t at = c.integer(argument);
  if (at < 0) at += static_cast<int64_t>(size);
  if (at < 0 || at >= static_cast<int64_t>(size)) throw Raised{"list index out of range"};
  return static_cast<size_t>(at);
}

// Whether two values are equal, which must be known at compile time.
bool same(const Call& c, const Value& a, const Value& b) {
  const auto condition = equal(a, b);
  const sym::Expr known = condition ? c.e.b.simplify(*condition) : sym::Expr(0);
  if (!condition || !known.is_const())
    Evaluator::unsupported(cat("'", c.name, "' compares ", kind_name(a), " that only the run knows"));
  return known.value() != 0;
}

auto find_key(const Call& c, Dict& dict, const Value& key) {
  return std::ranges::find_if(dict.items, [&](const auto& item) { return same(c, item.first, key); });
}

Result len(const Call& c) {
  const Value& v = c.at(0);
  if (v.sequence) return Value::of_integer(v.items().size());
  if (v.dict) return Value::of_integer(v.dict->items.size());
  if (v.is(VK::kString)) return Value::of_integer(v.text.size());
  if (!v.is_tensor()) return std::nullopt;
  const aten::Shape shape = aten::shape_of(c.e.b, v.tensor);
  if (shape.empty()) throw Raised{"len() of a 0-d tensor"};
  return Value::of_integer(shape[0]);
}

Result get_item(const Call& c) {
  const Value& v = c.at(0);
  if (is_sequence(v)) return v.items()[position(c, 1, v.items().size())];
  if (v.is(VK::kString)) return Value::of_string(std::string(1, v.text[position(c, 1, v.text.size())]));
  if (!v.dict) return std::nullopt;
  const auto found = find_key(c, *v.dict, c.at(1));
  if (found == v.dict->items.end()) throw Raised{cat("KeyError: ", marked(c.at(1)))};
  return found->second;
}
Result set_item(const Call& c) {
  const Value& v = c.at(0);
  if (v.is(VK::kList)) {
    list_of(c)[position(c, 1, v.items().size())] = c.at(2);
    return Value();
  }
  if (!v.dict) return std::nullopt;
  c.e.touch(v);
  const auto found = find_key(c, *v.dict, c.at(1));
  if (found != v.dict->items.end())
    found->second = c.at(2);
  else
    v.dict->items.emplace_back(c.at(1), c.at(2));
  return Value();
}
Result remove_item(const Call& c) {
  const Value& v = c.at(0);
  if (v.is(VK::kList)) {
    auto& items = list_of(c);
    items.erase(items.begin() + static_cast<ptrdiff_t>(position(c, 1, items.size())));
    return Value();
  }
  if (!v.dict) return std::nullopt;
  c.e.touch(v);
  const auto found = find_key(c, *v.dict, c.at(1));
  if (found == v.dict->items.end()) throw Raised{cat("KeyError: ", marked(c.at(1)))};
  v.dict->items.erase(found);
  return Value();
}

Result contains(const Call& c) {
  const Value& v = c.at(0);
  if (v.dict) return Value::of_bool(find_key(c, *v.dict, c.at(1)) != v.dict->items.end());
  if (v.is(VK::kString)) return Value::of_bool(v.text.find(c.at(1).text) != std::string::npos);
  if (!is_sequence(v)) return std::nullopt;
  sym::Expr any = 0;
  for (const Value& item : v.items()) {
    const auto one = equal(item, c.at(1));
    if (!one) return std::nullopt;
    any = sym::logical_or(any, *one);
  }
  return Value::of_bool(any);
}

// any() and all() of a list of bools.
Result any(const Call& c) {
  if (c.count() != 1 || !is_sequence(c.at(0))) return std::nullopt;
  sym::Expr out = c.name == "all" ? 1 : 0;
  for (const Value& item : c.at(0).items()) {
    if (!item.is_whole() && !item.is(VK::kFloat)) return std::nullopt;
    const sym::Expr one = c.e.condition_of(item);
    out = c.name == "all" ? sym::logical_and(out, one) : sym::logical_or(out, one);
  }
  return Value::of_bool(out);
}

void expect_short(int64_t size) {
  if (size > kLongestList)
    fail(ErrorKind::kOverBudget, "too-long", cat("a list has more than ", kLongestList, " items"));
}

Result append(const Call& c) {
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  auto& items = list_of(c);
  expect_short(std::ssize(items) + 1);
  items.push_back(c.at(1));
  return c.at(0);
}
Result extend(const Call& c) {
  if (!c.at(0).is(VK::kList) || !is_sequence(c.at(1))) return std::nullopt;
  const std::vector<Value> more = c.at(1).items();
  auto& items = list_of(c);
  expect_short(std::ssize(items) + std::ssize(more));
  items.insert(items.end(), more.begin(), more.end());
  return c.at(0);
}
Result insert(const Call& c) {
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  auto& items = list_of(c);
  const int64_t size = std::ssize(items);
  int64_t at = c.integer(1);
  at = std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  items.insert(items.begin() + at, c.at(2));
  return Value();
}
Result pop(const Call& c) {
  const Value& v = c.at(0);
  if (v.dict) {
    Result out = c.has(2) && find_key(c, *v.dict, c.at(1)) == v.dict->items.end() ? c.at(2) : get_item(c);
    if (find_key(c, *v.dict, c.at(1)) != v.dict->items.end()) remove_item(c);
    return out;
  }
  if (!v.is(VK::kList)) return std::nullopt;
  auto& items = list_of(c);
  if (items.empty()) throw Raised{"pop from empty list"};
  const size_t at = c.has(1) ? position(c, 1, items.size()) : items.size() - 1;
  Value out = items[at];
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return out;
}
Result clear(const Call& c) {
  if (c.at(0).dict) {
    c.e.touch(c.at(0));
    c.at(0).dict->items.clear();
    return Value();
  }
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  list_of(c).clear();
  return Value();
}
Result reverse(const Call& c) {
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  std::ranges::reverse(list_of(c));
  return Value();
}
Result copy(const Call& c) {
  const Value& v = c.at(0);
  if (is_sequence(v)) return Value::list(v.items());
  if (v.is(VK::kString)) {
    std::vector<Value> items;
    for (const char ch : v.text) items.push_back(Value::of_string(std::string(1, ch)));
    return Value::list(std::move(items));
  }
  if (!v.dict) return std::nullopt;
  if (c.name == "list") {
    std::vector<Value> keys;
    for (const auto& item : v.dict->items) keys.push_back(item.first);
    return Value::list(std::move(keys));
  }
  Value out = Value::new_dict();
  out.dict->items = v.dict->items;
  return out;
}
Result make_dict(const Call& c) {
  Value out = Value::new_dict();
  if (c.count() == 0) return out;
  if (c.at(0).dict) return copy(c);
  if (!is_sequence(c.at(0))) return std::nullopt;
  for (const Value& pair : c.at(0).items()) {
    if (!pair.sequence || pair.items().size() != 2) return std::nullopt;
    out.dict->items.emplace_back(pair.items()[0], pair.items()[1]);
  }
  return out;
}
Result index_of(const Call& c) {
  if (!is_sequence(c.at(0))) return std::nullopt;
  const auto& items = c.at(0).items();
  for (size_t i = 0; i < items.size(); ++i)
    if (same(c, items[i], c.at(1))) return Value::of_integer(i);
  throw Raised{"ValueError: the list does not have the item"};
}
Result count(const Call& c) {
  if (!is_sequence(c.at(0))) return std::nullopt;
  int64_t found = 0;
  for (const Value& item : c.at(0).items()) found += same(c, item, c.at(1));
  return Value::of_integer(found);
}
Result remove_value(const Call& c) {
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  const Value at = *index_of(c);
  auto& items = list_of(c);
  items.erase(items.begin() + at.integer.value());
  return Value();
}

// In order of numbers or of strings, which must be known.
Result sort(const Call& c) {
  if (!c.at(0).is(VK::kList)) return std::nullopt;
  std::vector<Value> items = c.at(0).items();
  const Value* reversed = c.named(1, "reverse");
  for (const Value& v : items) {
    const bool known = v.is(VK::kString) || v.is(VK::kFloat) || (v.is_whole() && v.integer.is_const());
    if (!known) Evaluator::unsupported(cat("a sort of ", kind_name(v), " that only the run knows"));
  }
  std::ranges::sort(items, [](const Value& a, const Value& b) {
    if (a.is(VK::kString)) return a.text < b.text;
    if (a.is(VK::kFloat)) return a.number < b.number;
    return a.integer.value() < b.integer.value();
  });
  if (reversed && reversed->integer.is_const(1)) std::ranges::reverse(items);
  if (c.name == "sorted") return Value::list(std::move(items));
  list_of(c) = std::move(items);
  return Value();
}

Result keys(const Call& c) {
  if (!c.at(0).dict) return std::nullopt;
  std::vector<Value> out;
  for (const auto& [key, value] : c.at(0).dict->items)
    out.push_back(c.name == "keys" ? key : c.name == "values" ? value : Value::tuple({key, value}));
  return Value::list(std::move(out));
}
Result get(const Call& c) {
  if (!c.at(0).dict) return std::nullopt;
  const auto found = find_key(c, *c.at(0).dict, c.at(1));
  if (found != c.at(0).dict->items.end()) return found->second;
  const Value otherwise = c.has(2) ? c.at(2) : Value();
  if (c.name == "setdefault") {
    c.e.touch(c.at(0));
    c.at(0).dict->items.emplace_back(c.at(1), otherwise);
  }
  return otherwise;
}
Result update(const Call& c) {
  if (!c.at(0).dict || !c.at(1).dict) return std::nullopt;
  c.e.touch(c.at(0));
  Dict& to = *c.at(0).dict;
  for (const auto& [key, value] : std::vector(c.at(1).dict->items)) {
    const auto found = find_key(c, to, key);
    if (found != to.items.end())
      found->second = value;
    else
      to.items.emplace_back(key, value);
  }
  return Value();
}

// [a, b] + [c], [a] * 3
Result add(const Call& c) {
  if (c.count() != 2 || !is_sequence(c.at(0)) || !is_sequence(c.at(1))) return std::nullopt;
  if (c.name == "add_") return extend(c);
  std::vector<Value> items = c.at(0).items();
  expect_short(std::ssize(items) + std::ssize(c.at(1).items()));
  items.insert(items.end(), c.at(1).items().begin(), c.at(1).items().end());
  return Value::of_items(c.at(0).kind, std::move(items));
}
Result multiply(const Call& c) {
  if (c.count() != 2) return std::nullopt;
  const size_t list = c.at(0).is(VK::kList) ? 0 : 1;
  if (!c.at(list).is(VK::kList) || !c.at(1 - list).is_whole()) return std::nullopt;
  const int64_t times = std::max<int64_t>(c.integer(1 - list), 0);
  const auto& items = c.at(list).items();
  expect_short(times);
  expect_short(times * std::ssize(items));
  std::vector<Value> out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::list(std::move(out));
}
// (list, start, end, step)
Result slice(const Call& c) {
  const Value& v = c.at(0);
  if (!is_sequence(v) && !v.is(VK::kString)) return std::nullopt;
  const int64_t size = v.sequence ? std::ssize(v.items()) : std::ssize(v.text);
  const int64_t step = c.has(3) ? c.integer(3) : 1;
  if (step == 0) throw Raised{"slice step cannot be zero"};
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (!c.has(i) || c.at(i).is_none()) return otherwise;
    const int64_t at = c.integer(i);
    if (at == std::numeric_limits<int64_t>::max()) return otherwise;
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t from = bound(1, step > 0 ? low : high), to = bound(2, step > 0 ? high : low);
  std::vector<Value> items;
  std::string text;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    if (v.sequence)
      items.push_back(v.items()[static_cast<size_t>(i)]);
    else
      text += v.text[static_cast<size_t>(i)];
  }
  return v.sequence ? Value::of_items(v.kind, std::move(items)) : Value::of_string(std::move(text));
}

struct Row {
  std::string_view name;
  Result (*run)(const Call& c);
};
constexpr Row kRows[] = {
    {"Delete", remove_item},
    {"__contains__", contains},
    {"__getitem__", get_item},
    {"_set_item", set_item},
    {"add", add},
    {"add_", add},
    {"all", any},
    {"any", any},
    {"append", append},
    {"clear", clear},
    {"copy", copy},
    {"count", count},
    {"dict", make_dict},
    {"extend", extend},
    {"get", get},
    {"index", index_of},
    {"insert", insert},
    {"items", keys},
    {"keys", keys},
    {"len", len},
    {"list", copy},
    {"mul", multiply},
    {"pop", pop},
    {"remove", remove_value},
    {"reverse", reverse},
    {"setdefault", get},
    {"slice", slice},
    {"sort", sort},
    {"sorted", sort},
    {"update", update},
    {"values", keys},
};

}  // namespace

bool has_container_function(const std::string& name) {
  return std::ranges::any_of(kRows, [&](const Row& r) { return r.name == name; });
}

Result call_container(const Call& c) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& r) { return r.name == c.name; });
  if (row == std::end(kRows)) return std::nullopt;
  if (c.count() == 0 && c.name != "dict") return std::nullopt;
  if (c.count() > 0 && c.at(0).is_failed()) return std::nullopt;
  return row->run(c);
}

}  // namespace stridec::torchscript
