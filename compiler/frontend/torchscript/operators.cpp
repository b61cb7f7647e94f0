#include "compiler/frontend/torchscript/operators.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/in_place.h"
#include "compiler/frontend/aten/user_call.h"
#include "compiler/frontend/torchscript/convert.h"
#include "compiler/frontend/torchscript/layouts.h"
#include "compiler/frontend/torchscript/upgrade.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;

// "SymInt[2]?" as {"int", optional, list, fixed_size}.
struct Type {
  std::string_view base;
  bool optional = false, list = false, optional_items = false;
  bool fixed_size = false;  // the list has a number of items in the schema
};
Type parse_type(std::string_view text) {
  Type out;
  if (text.ends_with('?')) {
    out.optional = true;
    text.remove_suffix(1);
  }
  if (text.ends_with(']')) {
    out.list = true;
    out.fixed_size = !text.ends_with("[]");
    text = text.substr(0, text.rfind('['));
    if (text.ends_with('?')) {
      out.optional_items = true;
      text.remove_suffix(1);
    }
  }
  out.base = text == "SymInt" ? "int" : text == "SymBool" ? "bool" : text;
  return out;
}

// How torch matches a value with a parameter: exactly, or by a conversion, which it tries after all overloads
// have failed to match exactly.
enum class Match : uint8_t { kNo, kConverted, kExact };

Match match_one(const Value& v, std::string_view base) {
  const auto exact = [](bool yes) { return yes ? Match::kExact : Match::kNo; };
  if (base == "Tensor") return v.is_tensor() ? Match::kExact : v.is_number() ? Match::kConverted : Match::kNo;
  const bool scalar_tensor = v.is_tensor();
  if (base == "int") return v.is(VK::kInt) ? Match::kExact : scalar_tensor ? Match::kConverted : Match::kNo;
  if (base == "float") {
    if (v.is(VK::kFloat) || v.is_run_float()) return Match::kExact;
    return v.is(VK::kInt) || scalar_tensor ? Match::kConverted : Match::kNo;
  }
  if (base == "Scalar") {
    if (v.is_number()) return Match::kExact;
    return scalar_tensor ? Match::kConverted : Match::kNo;
  }
  if (base == "bool") return exact(v.is(VK::kBool));
  if (base == "complex") return exact(v.is(VK::kComplex));
  if (base == "str" || base == "Dimname") return exact(v.is(VK::kString));
  if (base == "ScalarType" || base == "Layout" || base == "MemoryFormat") return exact(v.is(VK::kInt));
  if (base == "Device") return v.is(VK::kDevice) ? Match::kExact : exact(v.is(VK::kString));
  return Match::kNo;
}

Match match(const Value& v, std::string_view text) {
  const Type type = parse_type(text);
  if (v.is_none()) return type.optional || type.base == "Generator" ? Match::kExact : Match::kNo;
  if (!type.list) return match_one(v, type.base);
  // A single number stands for a list of fixed size alone: split(x, 2) is not split(x, [2]).
  if (!v.is(VK::kList) && !v.is(VK::kTuple)) {
    const bool numbers = type.base == "int" || type.base == "float" || type.base == "bool";
    return type.fixed_size && numbers ? match_one(v, type.base) : Match::kNo;
  }
  Match out = v.is(VK::kTuple) ? Match::kConverted : Match::kExact;
  for (const Value& item : v.items()) {
    if (item.is_none() && type.optional_items) continue;
    out = std::min(out, match_one(item, type.base));
  }
  return out;
}

Match match_all(const aten::Schema& schema, const Arguments& given) {
  const auto& wanted = schema.arguments;
  std::vector<bool> have(wanted.size());
  Match out = Match::kExact;
  size_t position = 0;
  for (size_t i = 0; i < given.values.size(); ++i) {
    size_t at = position++;
    if (!given.names[i].empty())
      at = static_cast<size_t>(
          std::ranges::find_if(wanted, [&](const auto& a) { return a.name == given.names[i]; }) -
          wanted.begin());
    else if (at < wanted.size() && wanted[at].keyword)
      return Match::kNo;
    if (at >= wanted.size() || have[at]) return Match::kNo;
    have[at] = true;
    out = std::min(out, match(given.values[i], wanted[at].type));
    if (out == Match::kNo) return out;
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!have[i] && !wanted[i].default_text) return Match::kNo;
  return out;
}

const aten::Schema* choose(const std::vector<const aten::Schema*>& overloads, const Arguments& given) {
  const aten::Schema* converted = nullptr;
  for (const aten::Schema* schema : overloads) {
    const Match how = match_all(*schema, given);
    if (how == Match::kExact) return schema;
    if (how == Match::kConverted && !converted) converted = schema;
  }
  return converted;
}

std::string kinds_of(const Arguments& given) {
  size_t i = 0;
  return join(given.values, ", ", [&](const Value& v) {
    const std::string& name = given.names[i++];
    return name.empty() ? kind_name(v) : cat(name, "=", kind_name(v));
  });
}

aten::Value value_for(Evaluator& e, const Value& v, const std::string& text) {
  const Type type = parse_type(text);
  if (type.base == "ScalarType" && v.is(VK::kInt)) return dtype_value(v.integer);
  if (type.base == "MemoryFormat" && v.is(VK::kInt)) return memory_format_value(v.integer);
  if (type.base == "Layout" && v.is(VK::kInt)) return other_value("layout");
  if (type.base == "Generator" && !v.is_none()) Evaluator::unsupported("a generator of random numbers");
  // A tensor of one element where a number is wanted.
  if (!type.list && v.is_tensor() && type.base != "Tensor") {
    if (type.base == "int") return aten::Value::integer_of(e.integer_of(v));
    return to_aten(e.b, v);
  }
  if (type.base == "float" && v.is(VK::kInt) && v.integer.is_const())
    return aten::Value::number_of(static_cast<double>(v.integer.value()));
  return to_aten(e.b, v);
}

}  // namespace

namespace {

bool is_user(const Evaluator& e, const std::string& space, const std::string& name) {
  return e.operators && e.operators->has(cat(space, "::", name));
}

std::vector<aten::NamedValue> named_values(Evaluator& e, const Arguments& arguments) {
  std::vector<aten::NamedValue> out;
  for (size_t i = 0; i < arguments.values.size(); ++i)
    out.push_back({arguments.names[i], to_aten(e.b, arguments.values[i])});
  return out;
}

Value call_user(Evaluator& e, const std::string& full, const std::string& name, const Arguments& arguments) {
  e.b.set_origin(cat("node ", e.calls++, " '", e.object_path(), e.object_path().empty() ? "" : "/", name,
                     "' (", full, ")"));
  const std::vector<aten::Value> results =
      aten::call_user(e.b, *e.operators, full, named_values(e, arguments), 0);
  if (results.size() == 1) return from_aten(results[0]);
  std::vector<Value> items;
  for (const aten::Value& result : results) items.push_back(from_aten(result));
  return Value::tuple(std::move(items));
}

}  // namespace

bool is_supported(const Evaluator& e, const std::string& space, const std::string& name) {
  return is_user(e, space, name) ||
         std::ranges::any_of(aten::overloads(space, name),
                             [](const aten::Schema* s) { return aten::find_row(*s) != nullptr; });
}

Value call_operator(Evaluator& e, const std::string& space, const std::string& name, Arguments arguments) {
  if (is_user(e, space, name)) return call_user(e, cat(space, "::", name), name, arguments);
  upgrade(e, space, name, arguments);
  const auto overloads = aten::overloads(space, name);
  if (!is_supported(e, space, name)) {
    constexpr size_t kMostCalls = 100;
    if (e.unknown.size() < kMostCalls)
      e.unknown.push_back(aten::unknown_call(e.b, cat(space, "::", name), named_values(e, arguments)));
    e.record_unsupported(cat(space, ".", name));
    return Value::failed();
  }
  const aten::Schema* schema = choose(overloads, arguments);
  if (!schema)
    Evaluator::unsupported(cat("operator ", space, ".", name, " does not take (", kinds_of(arguments), ")"));
  const std::string full = cat(space, ".", schema->full_name());
  if (aten::changes_dims_in_place(*schema))
    Evaluator::unsupported(cat("operator ", full,
                               ", which changes the dims of a tensor in place; write x = x.",
                               schema->name.substr(0, schema->name.size() - 1), "(...)"));
  if (!aten::find_row(*schema)) {
    e.record_unsupported(full);
    return Value::failed();
  }
  e.b.set_origin(cat("node ", e.calls++, " '", e.object_path(), e.object_path().empty() ? "" : "/", name,
                     "' (", full, ")"));
  std::vector<aten::NamedValue> given;
  size_t position = 0;
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const std::string& own = arguments.names[i];
    const auto wanted =
        own.empty() ? schema->arguments.begin() + static_cast<ptrdiff_t>(position++)
                    : std::ranges::find_if(schema->arguments, [&](const auto& a) { return a.name == own; });
    given.push_back({own, value_for(e, arguments.values[i], wanted->type)});
  }
  try {
    std::vector<aten::Value> results = aten::call(e.b, *schema, given);
    note_layout(e.b, *schema, given, results);
    if (schema->returns.empty()) return {};
    if (results.size() < schema->returns.size())
      Evaluator::unsupported(cat("operator ", full, ": only ", results.size(), " of its ",
                                 schema->returns.size(), " results are supported"));
    if (schema->returns.size() == 1) return from_aten(results[0]);
    std::vector<Value> items;
    for (size_t i = 0; i < schema->returns.size(); ++i) items.push_back(from_aten(results[i]));
    return Value::tuple(std::move(items));
  } catch (Error& error) {
    if (error.diagnostic.where.op.empty()) error.diagnostic.where.op = full;
    throw;
  }
}

}  // namespace stridec::torchscript
