#include "compiler/frontend/aten/complex_rules.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/aten/promotion.h"

namespace stridec::aten {
namespace {

using namespace ops;
using Kind = Value::Kind;

// Arguments that select or place elements, and are not data: they stay real.
bool is_control(std::string_view name) {
  return is_any_of(name, {"index", "indices", "mask", "condition", "repeats", "x", "spacing"});
}
// Numbers that become elements of the result.
bool is_moved_number(std::string_view name) {
  return is_any_of(name, {"value", "fill_value", "s", "self", "other"});
}

}  // namespace

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

size_t place_of(const Schema& schema, std::string_view name) {
  for (size_t i = 0; i < schema.arguments.size(); ++i)
    if (schema.arguments[i].name == name) return i;
  return schema.arguments.size();
}

void ComplexCall::unsupported() const {
  fail(ErrorKind::kUnsupported, "unsupported-op", schema.full_name() + " of complex numbers");
}
const Value& ComplexCall::value(std::string_view argument) const {
  return values.at(place_of(schema, argument));
}
bool ComplexCall::given(std::string_view argument) const {
  const size_t at = place_of(schema, argument);
  return at < values.size() && !values[at].is_none();
}
Complex ComplexCall::pair(std::string_view argument) const {
  return pair_of(b, value(argument), float_type(result_type(b, values)));
}
Results ComplexCall::run(std::vector<Value> own) const {
  for (Value& v : own) v.complex_dtype = false;
  Context c(b, schema, std::move(own));
  return row(c);
}
std::vector<Value> ComplexCall::parts(bool imaginary) const {
  std::vector<Value> out = values;
  for (size_t i = 0; i < out.size(); ++i) {
    const SchemaArgument& a = schema.arguments[i];
    if (is_control(a.name)) {
      if (mentions_complex(out[i])) unsupported();
      continue;
    }
    if (a.type.starts_with("Tensor") || (out[i].is_number() && is_moved_number(a.name)))
      out[i] = part_of(b, out[i], imaginary);
    else if (out[i].kind == Kind::kComplex)
      unsupported();
  }
  return out;
}
void ComplexCall::expect_dtype() const {
  for (const Value& v : values)
    if (v.kind == Kind::kDType && !v.complex_dtype && std::ranges::any_of(values, [](const Value& o) {
          return is_complex(o) || std::ranges::any_of(o.items, is_complex);
        }))
      unsupported();
}

}  // namespace stridec::aten
