#include "compiler/graph/graph.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::graph {

namespace {

constexpr std::string_view kOpNames[] = {
#define STRIDEC_OP(id, text) text,
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
};

}  // namespace

std::string_view name(OpKind kind) { return kOpNames[static_cast<int>(kind)]; }

std::string_view name(const Node& node) {
  const AttributeValue* routine = node.kind == OpKind::kCall ? node.attributes.find("routine") : nullptr;
  const auto* text = routine ? std::get_if<std::string>(routine) : nullptr;
  return text ? std::string_view(*text) : name(node.kind);
}

std::optional<OpKind> parse_op(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i)
    if (kOpNames[i] == name) return static_cast<OpKind>(i);
  return std::nullopt;
}

std::string to_string(const Type& type) {
  return cat(stridec::name(type.dtype), "[",
             join(type.shape, ", ", [](sym::Expr dim) { return sym::to_string(dim); }), "]");
}

void check_size(const Type& type) {
  if (type.shape.size() > kMaxRank)
    fail(ErrorKind::kUnsupported, "rank",
         cat("a tensor has ", type.shape.size(), " dims; this build knows up to ", kMaxRank));
  sym::Expr bytes = byte_size(type.dtype);
  for (sym::Expr dim : type.shape) {
    if (dim.is_const() && dim.value() < 0)
      fail(ErrorKind::kDoesNotFit, "does-not-fit", cat("a tensor has a dim of size ", dim));
    if (!dim.is_const(0)) bytes = bytes * dim;
  }
  if (bytes.is_const() && bytes.value() > kMostBytes)
    fail(ErrorKind::kDoesNotFit, "size-overflow",
         cat("a tensor takes ", bytes, " bytes, more than the address space holds"));
}

Data own(std::vector<uint8_t> bytes) {
  Data data;
  data.size = bytes.size();
  if (bytes.empty()) bytes.resize(1);  // so that the address is not null if there are no elements
  auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  data.bytes = owner->data();
  data.owner = std::move(owner);
  return data;
}

// ---- attributes ------------------------------------------------------------------------------------------

Attributes::Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> items) {
  for (const auto& [key, value] : items) set(key, value);
}

void Attributes::set(std::string name, AttributeValue value) {
  auto at = std::lower_bound(items_.begin(), items_.end(), name,
                             [](const auto& item, const std::string& key) { return item.first < key; });
  if (at != items_.end() && at->first == name)
    at->second = std::move(value);
  else
    items_.insert(at, {std::move(name), std::move(value)});
}

const AttributeValue* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return &value;
  return nullptr;
}

namespace {

const AttributeValue& need(const Attributes& attributes, std::string_view name) {
  const AttributeValue* value = attributes.find(name);
  STRIDEC_CHECK(value, cat("attribute '", name, "' is absent"));
  return *value;
}

template <class T>
const T& as(const AttributeValue& value, std::string_view name) {
  const T* typed = std::get_if<T>(&value);
  STRIDEC_CHECK(typed, cat("attribute '", name, "' has another type"));
  return *typed;
}

sym::Expr as_expr(const AttributeValue& value, std::string_view name) {
  if (const int64_t* number = std::get_if<int64_t>(&value)) return *number;
  return as<sym::Expr>(value, name);
}

}  // namespace

int64_t Attributes::integer(std::string_view name) const {
  const AttributeValue& value = need(*this, name);
  if (const auto* expr = std::get_if<sym::Expr>(&value))
    if (auto number = sym::as_const(*expr)) return *number;
  return as<int64_t>(value, name);
}

int64_t Attributes::integer_or(std::string_view name, int64_t otherwise) const {
  return find(name) ? integer(name) : otherwise;
}

double Attributes::number_or(std::string_view name, double otherwise) const {
  const AttributeValue* value = find(name);
  if (!value) return otherwise;
  if (const int64_t* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  return as<double>(*value, name);
}

const std::string& Attributes::text(std::string_view name) const {
  return as<std::string>(need(*this, name), name);
}

std::string Attributes::text_or(std::string_view name, std::string otherwise) const {
  return find(name) ? text(name) : std::move(otherwise);
}

DType Attributes::dtype(std::string_view name) const { return as<DType>(need(*this, name), name); }

const std::vector<int64_t>& Attributes::integers(std::string_view name) const {
  return as<std::vector<int64_t>>(need(*this, name), name);
}

sym::Expr Attributes::expr(std::string_view name) const { return as_expr(need(*this, name), name); }

std::vector<sym::Expr> Attributes::exprs(std::string_view name) const {
  const AttributeValue& value = need(*this, name);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value))
    return {numbers->begin(), numbers->end()};
  return as<std::vector<sym::Expr>>(value, name);
}

}  // namespace stridec::graph
