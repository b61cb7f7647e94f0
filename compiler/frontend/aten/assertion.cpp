// What a program asserts of itself: proven, or checked when it runs.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/sym/guard.h"

namespace stridec::aten {
namespace {

using namespace ops;

std::string sentence(const Context& c, const char* name) {
  if (c.names(name) && c.arg(name).kind == Value::Kind::kString && !c.text(name).empty())
    return sym::escaped(c.text(name));
  return "an assertion of the program fails";
}

Results assert_scalar(Context& c) {
  const Value& v = c.arg("self");
  if (v.is_tensor()) c.unsupported("an assertion on a float known at run time");
  c.b.require(v.kind == Value::Kind::kBool ? v.integer : sym::ne(v.integer, 0), sentence(c, "assert_msg"));
  return {};
}
Results assert_tensor(Context& c) {
  const Term x = reshape(c.in("self"), {});
  const Term truth = is_bool(x.dtype()) ? x : logical_not(equal(x, 0));
  const sym::Expr e = c.b.symbol_of(cast(truth, DType::kI64, false), "assertion", 0, 1);
  c.b.require(sym::eq(e, 1), sentence(c, "assert_msg"));
  return {};
}
// A statement about dtype and layout that the trace has decided.
Results assert_metadata(Context& c) {
  if (c.names("dtype") && c.has("dtype") && !c.arg("dtype").complex_dtype) {
    const Term x = c.in("a");
    if (*c.dtype("dtype") != x.dtype())
      c.does_not_fit(
          cat("the program asserts a tensor of ", name(*c.dtype("dtype")), ", but it is ", name(x.dtype())));
  }
  return {};
}
Results constrain_range(Context& c) {
  const sym::Expr e = c.size("size");
  if (c.has("min"))
    c.b.require(sym::ge(e, c.size("min")), "the program asserts at least {1}, but it is {0}",
                {e, c.size("min")});
  else if (c.schema.name.ends_with("for_size"))
    c.b.require(sym::ge(e, 0), "a size of {0}", {e});
  if (c.has("max"))
    c.b.require(sym::le(e, c.size("max")), "the program asserts at most {1}, but it is {0}",
                {e, c.size("max")});
  return {};
}

// A singular matrix gives infinities, and no error.
Results nothing(Context&) { return {}; }

constexpr Row kRows[] = {
    {"_assert_async", assert_tensor},         {"_assert_scalar", assert_scalar},
    {"_linalg_check_errors", nothing},        {"_assert_tensor_metadata", assert_metadata, Numbers::kComplex},
    {"sym_constrain_range", constrain_range}, {"sym_constrain_range_for_size", constrain_range},
};

}  // namespace

std::span<const Row> assertion_rows() { return kRows; }

}  // namespace stridec::aten
