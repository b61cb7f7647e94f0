#include "compiler/ops/fixed_input.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/guard.h"

namespace stridec::ops {
namespace {

constexpr int64_t kMostElements = 64;  // each element is a symbol and a comparison in the run

[[noreturn]] void refuse(std::string message, std::string help) {
  fail(ErrorKind::kUsage, "bad-input-value", std::move(message), std::move(help));
}

}  // namespace

Term fixed_input(Builder& b, const std::string& name, std::optional<Term> input,
                 const std::vector<int64_t>& values) {
  if (!input || is_float(input->dtype()))
    refuse(cat("input '", name, "' does not hold integers"), "fix inputs of integers and bools");
  const auto count = sym::as_const(b.simplify(ops::count(input->shape())));
  if (!count || *count > kMostElements)
    refuse(cat("input '", name, "' ", graph::to_string(b.type(input->id())), " may have more than ",
               kMostElements, " elements"),
           "fix its sizes by --dim, or leave it open");
  if (values.size() != 1 && static_cast<int64_t>(values.size()) != *count)
    refuse(cat("input '", name, "' has ", *count, " elements, and ", values.size(), " values are given"),
           "give one value for all, or one for each");
  std::vector<sym::Expr> elements;
  const Term flat = ops::reshape(*input, {*count});
  for (int64_t i = 0; i < *count; ++i) {
    const int64_t value = values[values.size() == 1 ? 0 : static_cast<size_t>(i)];
    elements.emplace_back(value);
    const Term one = ops::reshape(ops::slice(flat, 0, i, 1), {});
    b.add(graph::OpKind::kSymbolOf, {one},
          {{"symbol", b.fresh_symbol(name, value, value)},
           {"lower", sym::Expr(value)},
           {"upper", sym::Expr(value)},
           {"check", int64_t{1}},
           {"sentence", cat("input '", sym::escaped(name), "' is {0}, and this artifact is compiled for ",
                            value, " alone (--input-value)")}});
  }
  return {b, b.elements(elements, b.shape(input->id()), input->dtype())};
}

}  // namespace stridec::ops
