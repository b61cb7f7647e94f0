#include "compiler/frontend/onnx/import_context.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/schema.h"
#include "compiler/ops/composite/shape.h"
#include "compiler/ops/tables.h"

namespace stridec::onnx {

Slot Slot::strings(ValueId index, ValueId pool) {
  Slot s;
  s.kind = Kind::kStrings;
  s.tensor = index;
  s.pool = pool;
  return s;
}

Slot Slot::sequence(std::vector<Slot> items) {
  Slot s;
  s.kind = Kind::kSequence;
  s.items = std::move(items);
  return s;
}

Slot Slot::empty_optional() {
  Slot s;
  s.kind = Kind::kEmptyOptional;
  return s;
}

Slot Slot::map(Slot keys, Slot values) {
  Slot s;
  s.kind = Kind::kMap;
  s.items = {std::move(keys), std::move(values)};
  return s;
}

void Context::unsupported(std::string message, std::string help) const {
  fail(ErrorKind::kUnsupported, "unsupported", std::move(message), std::move(help));
}
void Context::does_not_fit(std::string message) const {
  fail(ErrorKind::kDoesNotFit, "does-not-fit", std::move(message));
}

// ---- inputs ----

const Slot& Context::slot(size_t i) const {
  if (!has(i)) fail(ErrorKind::kMalformed, "missing-input", cat("input ", i, " is missing"));
  return inputs_.at(i);
}

Term Context::in(size_t i) const {
  const Slot& s = slot(i);
  if (s.kind == Slot::Kind::kSequence) does_not_fit(cat("input ", i, " is a sequence, not a tensor"));
  if (s.kind == Slot::Kind::kMap) does_not_fit(cat("input ", i, " is a map, not a tensor"));
  if (s.kind == Slot::Kind::kStrings)
    unsupported(cat(node.op_type, " of strings is not supported"),
                "do this work on strings outside of the model");
  if (s.kind != Slot::Kind::kTensor) does_not_fit(cat("input ", i, " is an empty optional, not a tensor"));
  return {b, s.tensor};
}

// ---- attributes ----

int64_t Context::integer(std::string_view name, int64_t otherwise) const {
  const Attribute* a = node.find(name);
  return a && !a->ints.empty() ? a->ints[0] : otherwise;
}

int64_t Context::integer(std::string_view name) const {
  const Attribute* a = node.find(name);
  if (!a || a->ints.empty())
    fail(ErrorKind::kMalformed, "missing-attribute", cat("attribute '", name, "' is missing"));
  return a->ints[0];
}

double Context::number(std::string_view name, double otherwise) const {
  const Attribute* a = node.find(name);
  return a && !a->floats.empty() ? static_cast<double>(a->floats[0]) : otherwise;
}

std::string Context::text(std::string_view name, std::string otherwise) const {
  const Attribute* a = node.find(name);
  return a && !a->strings.empty() ? a->strings[0] : otherwise;
}

Dims Context::integers(std::string_view name, Dims otherwise) const {
  const Attribute* a = node.find(name);
  return a ? a->ints : otherwise;
}

std::vector<double> Context::numbers(std::string_view name) const {
  const Attribute* a = node.find(name);
  return a ? std::vector<double>(a->floats.begin(), a->floats.end()) : std::vector<double>();
}

std::vector<std::string> Context::texts(std::string_view name) const {
  const Attribute* a = node.find(name);
  return a ? a->strings : std::vector<std::string>();
}

const Tensor* Context::tensor(std::string_view name) const {
  const Attribute* a = node.find(name);
  return a && !a->tensors.empty() ? &a->tensors[0] : nullptr;
}

const Graph& Context::graph(std::string_view name) const {
  const Attribute* a = node.find(name);
  if (!a || a->graphs.empty())
    fail(ErrorKind::kMalformed, "missing-attribute", cat("attribute '", name, "' is missing"));
  return a->graphs[0];
}

DType Context::dtype(int elem_type) const {
  const auto type = dtype_from_onnx(elem_type);
  if (!type)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("element type ", elem_type_name(elem_type), " is not supported"),
         elem_type == kElemString ? "do the work on strings outside of the model" : "");
  return *type;
}

DType Context::dtype(std::string_view attribute, DType otherwise) const {
  const Attribute* a = node.find(attribute);
  return a && !a->ints.empty() && a->ints[0] != 0 ? dtype(static_cast<int>(a->ints[0])) : otherwise;
}

// ---- sizes ----

int64_t Context::axis(int64_t value, int64_t rank) const {
  if (value < -rank || value >= rank)
    does_not_fit(cat("axis ", value, " is outside a tensor of rank ", rank));
  return value < 0 ? value + rank : value;
}

Dims Context::axes(Dims values, int64_t rank) const {
  for (int64_t& v : values) v = axis(v, rank);
  Dims sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    does_not_fit(cat("axis ", *twice, " is given twice"));
  return values;
}

std::optional<Dims> Context::constant_integers(size_t i) const {
  if (!has(i)) return std::nullopt;
  const auto known = b.known(in(i));
  if (!known) return std::nullopt;
  Dims out;
  for (sym::Expr e : *known) {
    const auto value = sym::as_const(b.simplify(e));
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

Dims Context::integers_of(size_t i, std::string_view what) const {
  if (auto known = constant_integers(i)) return *known;
  if (!has(i)) fail(ErrorKind::kMalformed, "missing-input", cat("input ", i, " (", what, ") is missing"));
  unsupported(cat(what, " must be known at compile time, but ", b.display(in(i)), " depends on the inputs"));
}

std::optional<ops::Axes> Context::axes_of(size_t input, const std::string& attribute, int64_t rank) const {
  std::vector<sym::Expr> values;
  if (has(input))
    values = sizes_of(input, attribute, -rank, std::max<int64_t>(rank, 1) - 1);
  else if (has_attribute(attribute))
    for (int64_t v : integers(attribute)) values.emplace_back(v);
  else
    return std::nullopt;
  return ops::axes_of(b, values, rank);
}

std::vector<sym::Expr> Context::sizes_of(size_t i, const std::string& what, sym::Expr lower,
                                         sym::Expr upper) const {
  return ops::size_values(in(i), what, lower, upper);
}

sym::Expr Context::size_of(size_t i, const std::string& what, sym::Expr lower, sym::Expr upper) const {
  Term x = in(i);
  if (!ops::count(x.shape()).is_const()) x = reshape(x, {});  // checks that there is exactly one element
  const std::vector<sym::Expr> values = ops::size_values(x, what, lower, upper);
  if (values.size() != 1) does_not_fit(cat(what, " must be one number"));
  return values[0];
}

std::optional<double> Context::constant_number(size_t i) const {
  if (!has(i)) return std::nullopt;
  b.fix(in(i).id());
  return ops::known_number(in(i));
}

std::optional<int64_t> Context::declared_rank(size_t output) const {
  return wants(output) ? importer_.declared_rank(node.outputs[output]) : std::nullopt;
}

Term Context::constant(const Tensor& t, std::string name) const {
  const DType type = dtype(t.elem_type);
  Shape shape(t.dims.begin(), t.dims.end());
  return {b, b.constant(std::move(name), {type, std::move(shape)},
                        {t.bytes.owner, reinterpret_cast<const uint8_t*>(t.bytes.data), t.bytes.size})};
}

}  // namespace stridec::onnx
