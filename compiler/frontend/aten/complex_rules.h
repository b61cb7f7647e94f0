// Rules that import operators on complex numbers as operators on their real and imaginary parts, by family.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

// A call with complex arguments. `row` imports the operator for real arguments. `name` is the operator's
// name, without the "_" of in-place operators.
struct ComplexCall {
  Builder& b;
  const Schema& schema;
  const std::vector<Value>& values;
  ImportFn row;
  std::string_view name;

  [[noreturn]] void unsupported() const;
  const Value& value(std::string_view argument) const;
  bool given(std::string_view argument) const;  // in the schema and not None
  // The parts of an argument in the common dtype of all arguments. A real argument has an imaginary part of
  // zeros.
  ops::Complex pair(std::string_view argument) const;
  // Imports the operator for real arguments.
  Results run(std::vector<Value> own) const;
  // The arguments, with the real or imaginary part of each value that the operator moves. Indices, masks and
  // similar arguments stay.
  std::vector<Value> parts(bool imaginary) const;
  // Refuses a real dtype for complex arguments, because it drops the imaginary part.
  void expect_dtype() const;
};

size_t place_of(const Schema& schema, std::string_view name);
bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names);

using ComplexRuleFn = Results (*)(const ComplexCall& c);
struct ComplexRule {
  std::string_view name;
  ComplexRuleFn apply;
};
// The families. Add a new one here and to the list in complex_parts.cpp.
std::span<const ComplexRule> complex_function_rules();
std::span<const ComplexRule> complex_algebra_rules();

}  // namespace stridec::aten
