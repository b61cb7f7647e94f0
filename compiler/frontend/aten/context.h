// What a row of the operator tables sees: its arguments by the names of PyTorch's schema, with defaults
// filled in, as terms, sizes or constants.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/aten/schema.h"
#include "compiler/frontend/aten/value.h"

namespace stridec::aten {

class Context {
 public:
  Context(Builder& builder, const Schema& schema, std::vector<Value> args)
      : b(builder), schema(schema), args_(std::move(args)) {}

  Builder& b;
  const Schema& schema;

  // -- arguments
  bool names(std::string_view name) const;  // whether the schema has it
  bool has(std::string_view name) const;    // in the schema and not None
  const Value& arg(std::string_view name) const;
  const Value& arg(size_t i) const { return args_.at(i); }
  size_t count() const { return args_.size(); }

  // -- tensors. A number given for a tensor becomes a wrapped one.
  Tensor tensor(std::string_view name) const;
  Term in(std::string_view name) const;
  std::optional<Term> optional(std::string_view name) const;
  std::vector<Tensor> tensors(std::string_view name) const;
  std::vector<Term> terms(std::string_view name) const;

  // -- numbers
  sym::Expr size(std::string_view name) const;   // possibly symbolic
  Shape sizes(std::string_view name) const;      // a list; a single number is a list of one
  int64_t integer(std::string_view name) const;  // known at compile time
  Dims integers(std::string_view name) const;
  // One for each of n spatial dims; a single one stands for all.
  Dims spatial(std::string_view name, size_t n) const;
  double number(std::string_view name) const;
  std::optional<double> optional_number(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::optional<DType> dtype(std::string_view name) const;  // none if None or absent
  // A Scalar as a term of this dtype: a constant, or a size or number known at run time.
  Term scalar(std::string_view name, DType dtype) const;

  // -- dims
  // Negative ones count from the end. Throws Error for a scalar: a row that takes one asks before.
  int64_t dim(std::string_view name, int64_t rank) const;
  // As the list has them.
  Dims listed_dims(std::string_view name, int64_t rank) const;
  // In order. None or an empty list means all.
  Dims dims(std::string_view name, int64_t rank) const;

  [[noreturn]] void unsupported(std::string message, std::string help = {}) const;
  [[noreturn]] void does_not_fit(std::string message) const;

 private:
  std::vector<Value> args_;
};

int64_t normal_dim(int64_t dim, int64_t rank);
// A value as a term: a tensor, or a number as a rank-0 tensor (i64, f32 or bool).
Term as_term(Builder& b, const Value& value);
// Adds an output of the graph. `_` is appended to a name that another output has; the caller is warned that a
// complex output is one of pairs.
void add_output(Builder& b, std::string name, Term value, bool complex, std::vector<Diagnostic>& warnings);
// Makes random draws differ from run to run. Throws Error for one in a loop.
void keep_generator(Builder& b);
Term scalar_of(Builder& b, const Value& value, DType dtype);
DType dtype_of_number(const Value& value);

using ImportFn = Results (*)(Context& c);

// What numbers a row may be given. Those for kComplex tell complex tensors apart, or treat all tensors alike.
// Other rows never see one: the operator has a rule of complex_rules.h, or is refused.
enum class Numbers : uint8_t { kReal, kComplex };

// A name ("add") stands for all overloads; "add.Tensor" for one. A row of an operator also serves its
// in-place variant ("add_") and its `out=` overloads.
struct Row {
  std::string_view name;
  ImportFn import;
  Numbers numbers = Numbers::kReal;
};

// The rows of a family that takes complex numbers throughout.
template <size_t N>
constexpr std::array<Row, N> for_complex(const Row (&rows)[N]) {
  std::array<Row, N> out{};
  for (size_t i = 0; i < N; ++i) out[i] = {rows[i].name, rows[i].import, Numbers::kComplex};
  return out;
}

}  // namespace stridec::aten
