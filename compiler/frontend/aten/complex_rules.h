// How operators of real numbers compute complex ones: a rule for each operator that has one, by families.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

// An operator, its arguments and its row for real numbers. In-place operators have the name without "_".
struct ComplexCall {
  Builder& b;
  const Schema& schema;
  const std::vector<Value>& values;
  ImportFn row;
  std::string_view name;

  [[noreturn]] void unsupported() const;
  const Value& value(std::string_view argument) const;
  bool given(std::string_view argument) const;  // in the schema and not None
  // The parts of an argument in the dtype that all arguments have together; a real one has an imaginary part
  // of zeros.
  ops::Complex pair(std::string_view argument) const;
  // The results for real arguments.
  Results run(std::vector<Value> own) const;
  // The arguments with the real or imaginary part of all that is moved.
  std::vector<Value> parts(bool imaginary) const;
  // Refuses a real dtype for complex arguments: it drops a part.
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
