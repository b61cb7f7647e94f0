// The functions that sources call: Python's own on numbers, strings and containers, questions about tensors,
// and PyTorch's operators.
#pragma once

#include <optional>
#include <string>

#include "compiler/frontend/torchscript/evaluator.h"

namespace stridec::torchscript {

// One call. A function that does not serve its arguments returns none, and the next kind is tried.
struct Call {
  Evaluator& e;
  const std::string& name;
  Arguments& given;

  size_t count() const { return given.values.size(); }
  const Value& at(size_t i) const;  // throws Error if there are fewer
  bool has(size_t i) const { return i < given.values.size(); }
  // The argument at this place or of this name; null if it is not given.
  const Value* named(size_t place, const std::string& argument) const;
  int64_t integer(size_t i) const;  // known at compile time
};

// `space` is "aten" (torch.NAME), "prim" (ops.prim.NAME), another namespace of operators, or "" for int(x).
// Throws Error for functions that stridec does not have.
Value call_builtin(Evaluator& e, const std::string& space, const std::string& name, Arguments arguments);

// Whether the name is one that the kinds below may serve.
bool is_python_function(const std::string& name);

// The kinds, in the order in which they are tried.
std::optional<Value> call_number(const Call& c);     // numbers.cpp: arithmetic and comparisons
std::optional<Value> call_rows(const Call& c);       // rows.cpp: lists of a length that only the run knows
std::optional<Value> call_container(const Call& c);  // containers.cpp: lists, tuples, dicts
std::optional<Value> call_string(const Call& c);     // strings.cpp
std::optional<Value> call_query(const Call& c);      // queries.cpp: questions about tensors, conversions
std::optional<Value> call_prim(const Call& c);       // queries.cpp: ops.prim

// `ops.quantized.NAME` (quantized.cpp): linear layers with weights of 8 bits or f16, whose inputs are
// quantised in the run; none for other operators. The packed weights are not loaded yet.
std::optional<Value> call_quantized(Evaluator& e, const std::string& name, const Arguments& given);

// Whether a kind has a function of this name, for some arguments.
bool has_number_function(const std::string& name);
bool has_container_function(const std::string& name);
bool has_string_function(const std::string& name);
bool has_query(const std::string& name);

}  // namespace stridec::torchscript
