// Copies, conversions, and operators that return their argument itself where nothing has to be copied.
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/promotion.h"

namespace stridec::aten {
namespace {

const char* first_name(const Context& c) { return c.names("self") ? "self" : "a"; }

Results same(Context& c) { return {c.tensor(first_name(c))}; }

Tensor copy_of(Context& c, const Tensor& t) {
  Tensor out = fresh(read(c.b, t));
  out.complex = t.complex;
  return out;
}
Results clone(Context& c) { return {copy_of(c, c.tensor(first_name(c)))}; }

bool wants_contiguous(const Context& c) {
  if (!c.has("memory_format")) return true;
  const Value& format = c.arg("memory_format");  // the schema's default is the number of the contiguous one
  return format.kind == Value::Kind::kInt || format.text == "contiguous";
}
Results contiguous(Context& c) {
  const Tensor t = c.tensor("self");
  // Another memory format is taken to be the tensor's own if it is not contiguous.
  const bool alias = is_contiguous(c.b, t) == wants_contiguous(c);
  return {alias ? t : copy_of(c, t)};
}

Results converted(Context& c, const Tensor& t, std::optional<DType> to, bool copy) {
  if (t.complex) {
    if (!to) return {copy ? copy_of(c, t) : t};
    const Term pairs = read(c.b, t);  // the real part, as PyTorch takes it with a warning
    const int64_t last = pairs.rank() - 1;
    const Term re = ops::squeeze(ops::slice(pairs, last, 0, 1), {last});
    return {ops::cast(is_bool(*to) ? ops::reduce_max(ops::abs(pairs), {last}) : re, *to, false)};
  }
  const Term x = read(c.b, t);
  if (!copy && (!to || *to == x.dtype())) return {t};
  return {ops::cast(x, to.value_or(x.dtype()), false).id() == x.id() ? Value(copy_of(c, t))
                                                                     : Value(ops::cast(x, *to, false))};
}
Results to(Context& c) {
  const Tensor t = c.tensor("self");
  const bool copy = (c.names("copy") && c.flag("copy")) || c.schema.name == "_to_copy";
  if (c.names("other")) return converted(c, t, c.in("other").dtype(), copy);
  const bool known = c.names("dtype") && c.has("dtype") && c.arg("dtype").kind == Value::Kind::kDType;
  if (known && c.arg("dtype").complex_dtype) {
    const DType to = c.arg("dtype").dtype;
    if (t.complex) {
      const Term pairs = read(c.b, t);
      if (pairs.dtype() == to) return {copy ? copy_of(c, t) : t};
      Tensor out = fresh(ops::cast(pairs, to, false));
      out.complex = true;
      return {out};
    }
    const Term re = ops::cast(read(c.b, t), to, false);
    return {joined(re, ops::number_like(re, 0))};
  }
  return converted(c, t, c.names("dtype") ? c.dtype("dtype") : std::nullopt, copy);
}
Results type_as(Context& c) { return converted(c, c.tensor("self"), c.in("other").dtype(), false); }

// The source, converted and broadcast to the destination.
Term converted_source(Context& c, Term old) {
  return ops::expand(ops::cast(c.in("src"), old.dtype(), false), old.shape());
}
Results copy_(Context& c) {
  const Tensor to = c.tensor("self");
  write(c.b, to, converted_source(c, c.in("self")));
  return {to};
}
Results copy(Context& c) { return {converted_source(c, c.in("self"))}; }

Results filled_like(Context& c, const char* value) {
  const Term x = c.in("self");
  const Term v = value ? ops::cast(ops::reshape(as_term(c.b, c.arg(value)), {}), x.dtype(), false)
                       : ops::number(c.b, x.dtype(), 0);
  return {ops::expand(v, x.shape())};
}
Results fill(Context& c) { return filled_like(c, "value"); }
Results zero(Context& c) { return filled_like(c, nullptr); }
Results fill_in_place(Context& c, const char* value) {
  const Tensor to = c.tensor("self");
  write(c.b, to, as_term(c.b, filled_like(c, value)[0]));
  return {to};
}
Results fill_(Context& c) { return fill_in_place(c, "value"); }
Results zero_(Context& c) { return fill_in_place(c, nullptr); }

constexpr Row kRows[] = {
    {"_to_copy", to, Numbers::kComplex},
    {"alias", same, Numbers::kComplex},
    {"clone", clone, Numbers::kComplex},
    {"contiguous", contiguous, Numbers::kComplex},
    {"copy", copy},
    {"copy_", copy_},
    {"cpu", same, Numbers::kComplex},
    {"detach", same, Numbers::kComplex},
    {"detach_", same, Numbers::kComplex},
    {"detach_copy", clone, Numbers::kComplex},
    {"alias_copy", clone, Numbers::kComplex},
    {"fill", fill},
    {"fill_", fill_},
    {"lift", same, Numbers::kComplex},
    {"lift_fresh", same, Numbers::kComplex},
    {"lift_fresh_copy", clone, Numbers::kComplex},
    {"positive", same, Numbers::kComplex},
    {"requires_grad_", same, Numbers::kComplex},
    {"resolve_conj", same, Numbers::kComplex},
    {"resolve_neg", same, Numbers::kComplex},
    {"to", to, Numbers::kComplex},
    {"type_as", type_as, Numbers::kComplex},
    {"zero", zero},
    {"zero_", zero_},
};

}  // namespace

std::span<const Row> alias_rows() { return kRows; }

}  // namespace stridec::aten
