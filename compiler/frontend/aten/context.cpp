#include "compiler/frontend/aten/context.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::aten {

using Kind = Value::Kind;

int64_t normal_dim(int64_t dim, int64_t rank) {
  const int64_t most = std::max<int64_t>(rank, 1);  // a scalar takes dims 0 and -1
  if (dim < -most || dim >= most)
    fail(ErrorKind::kDoesNotFit, "bad-dim", cat("dim ", dim, " of a tensor of rank ", rank));
  return dim < 0 ? dim + most : dim;
}

DType dtype_of_number(const Value& value) {
  if (value.kind == Kind::kFloat || value.kind == Kind::kComplex) return DType::kF32;
  return value.kind == Kind::kBool ? DType::kBool : DType::kI64;
}

Term scalar_of(Builder& b, const Value& value, DType dtype) {
  if (value.is_tensor()) return ops::cast(ops::reshape(read(b, value.tensor), {}), dtype, false);
  if (value.kind == Kind::kFloat) {
    if (is_float(dtype)) return ops::number(b, dtype, value.number);
    return {b, b.elements({static_cast<int64_t>(value.number)}, {}, dtype)};
  }
  if (value.kind != Kind::kInt && value.kind != Kind::kBool)
    fail(ErrorKind::kUnsupported, "unsupported-value", "expected a number, not a value of another kind");
  if (value.integer.is_const()) {
    if (is_float(dtype)) return ops::number(b, dtype, static_cast<double>(value.integer.value()));
    if (is_bool(dtype)) return {b, b.elements({value.integer.value() != 0}, {}, dtype)};
    return {b, b.elements({value.integer}, {}, dtype)};
  }
  const Term whole(b,
                   b.elements({value.integer}, {}, value.kind == Kind::kBool ? DType::kBool : DType::kI64));
  return ops::cast(whole, dtype, false);
}

void add_output(Builder& b, std::string name, Term value, bool complex, std::vector<Diagnostic>& warnings) {
  const std::vector<std::string>& names = b.graph().output_names;
  while (std::ranges::count(names, name) > 0) name += "_";
  if (complex)
    warnings.push_back(
        {.kind = ErrorKind::kUnsupported,
         .code = "complex-output",
         .message = cat("output '", name, "' is complex: its last dim has the real and the imaginary part"),
         .where = {},
         .notes = {},
         .help = {}});
  b.output(std::move(name), value);
}

Term as_term(Builder& b, const Value& value) {
  if (value.is_tensor()) return read(b, value.tensor);
  return scalar_of(b, value, dtype_of_number(value));
}

bool Context::names(std::string_view name) const {
  return std::any_of(schema.arguments.begin(), schema.arguments.end(),
                     [&](const auto& a) { return a.name == name; });
}

const Value& Context::arg(std::string_view name) const {
  for (size_t i = 0; i < schema.arguments.size(); ++i)
    if (schema.arguments[i].name == name) return args_.at(i);
  check_failed(__FILE__, __LINE__, "argument", cat(schema.full_name(), " has no argument ", name));
}

bool Context::has(std::string_view name) const { return names(name) && !arg(name).is_none(); }

Tensor Context::tensor(std::string_view name) const {
  const Value& value = arg(name);
  if (value.is_tensor()) return value.tensor;
  if (!value.is_number()) does_not_fit(cat("'", name, "' is not a tensor"));
  Tensor out = fresh(as_term(b, value));
  out.wrapped = true;
  return out;
}

Term Context::in(std::string_view name) const {
  const Tensor t = tensor(name);
  if (t.complex) unsupported(cat(schema.full_name(), " of complex numbers"));
  return read(b, t);
}

std::optional<Term> Context::optional(std::string_view name) const {
  return has(name) ? std::optional(in(name)) : std::nullopt;
}

std::vector<Tensor> Context::tensors(std::string_view name) const {
  std::vector<Tensor> out;
  for (const Value& item : arg(name).items) {
    if (!item.is_tensor()) does_not_fit(cat("'", name, "' has an item that is not a tensor"));
    out.push_back(item.tensor);
  }
  return out;
}

std::vector<Term> Context::terms(std::string_view name) const {
  std::vector<Term> out;
  for (const Tensor& t : tensors(name)) {
    if (t.complex) unsupported(cat(schema.full_name(), " of complex numbers"));
    out.push_back(read(b, t));
  }
  return out;
}

sym::Expr Context::size(std::string_view name) const {
  const Value& value = arg(name);
  if (value.kind == Kind::kInt || value.kind == Kind::kBool) return value.integer;
  if (value.kind == Kind::kFloat && value.number == static_cast<double>(static_cast<int64_t>(value.number)))
    return static_cast<int64_t>(value.number);
  does_not_fit(cat("'", name, "' is not an integer"));
}

Shape Context::sizes(std::string_view name) const {
  const Value& value = arg(name);
  if (value.kind != Kind::kList) return {size(name)};
  Shape out;
  for (const Value& item : value.items) {
    if (item.kind != Kind::kInt && item.kind != Kind::kBool)
      does_not_fit(cat("'", name, "' is not a list of integers"));
    out.push_back(item.integer);
  }
  return out;
}

int64_t Context::integer(std::string_view name) const {
  const sym::Expr e = b.simplify(size(name));
  if (!e.is_const()) unsupported(cat("'", name, "' must be known at compile time"));
  return e.value();
}

Dims Context::integers(std::string_view name) const {
  Dims out;
  for (sym::Expr e : sizes(name)) {
    const sym::Expr s = b.simplify(e);
    if (!s.is_const()) unsupported(cat("'", name, "' must be known at compile time"));
    out.push_back(s.value());
  }
  return out;
}

Dims Context::spatial(std::string_view name, size_t n) const {
  Dims out = integers(name);
  if (out.size() == 1) out.assign(n, out[0]);
  if (out.size() != n) does_not_fit(cat(name, " has ", out.size(), " numbers for ", n, " dims"));
  return out;
}

double Context::number(std::string_view name) const {
  const Value& value = arg(name);
  if (value.kind == Kind::kFloat) return value.number;
  if (value.kind == Kind::kInt || value.kind == Kind::kBool) return static_cast<double>(integer(name));
  unsupported(cat("'", name, "' must be a number known at compile time"));
}

std::optional<double> Context::optional_number(std::string_view name) const {
  return has(name) ? std::optional(number(name)) : std::nullopt;
}

bool Context::flag(std::string_view name) const { return has(name) && integer(name) != 0; }

std::string Context::text(std::string_view name) const {
  if (arg(name).kind != Kind::kString) does_not_fit(cat("'", name, "' is not a string"));
  return arg(name).text;
}

std::optional<DType> Context::dtype(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  if (arg(name).kind != Kind::kDType) does_not_fit(cat("'", name, "' is not a dtype"));
  if (arg(name).complex_dtype) unsupported("complex numbers are not supported here");
  return arg(name).dtype;
}

Term Context::scalar(std::string_view name, DType dtype) const { return scalar_of(b, arg(name), dtype); }

int64_t Context::dim(std::string_view name, int64_t rank) const {
  if (rank == 0) unsupported(cat(schema.full_name(), " along a dim of a scalar"));
  return normal_dim(integer(name), rank);
}

Dims Context::listed_dims(std::string_view name, int64_t rank) const {
  Dims out;
  for (int64_t d : integers(name)) out.push_back(normal_dim(d, rank));
  return out;
}

Dims Context::dims(std::string_view name, int64_t rank) const {
  Dims out;
  if (has(name)) out = listed_dims(name, rank);
  if (rank == 0) return {};  // dim 0 of a scalar is none
  if (out.empty()) {
    out.resize(static_cast<size_t>(rank));
    std::iota(out.begin(), out.end(), 0);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end())
    does_not_fit(cat("'", name, "' names a dim twice"));
  return out;
}

void Context::unsupported(std::string message, std::string help) const {
  fail(ErrorKind::kUnsupported, "unsupported-op", std::move(message), std::move(help));
}
void Context::does_not_fit(std::string message) const {
  fail(ErrorKind::kDoesNotFit, "bad-argument", std::move(message));
}

}  // namespace stridec::aten
