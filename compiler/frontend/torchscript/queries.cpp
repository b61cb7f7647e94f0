// Questions about tensors, conversions between tensors and numbers, and TorchScript's own operators
// (ops.prim).
#include <algorithm>
#include <cmath>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/builtins.h"
#include "compiler/frontend/torchscript/convert.h"
#include "compiler/frontend/torchscript/element_type.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using Result = std::optional<Value>;
using ops::Term;

Term read(const Call& c, const Value& v) { return aten::read(c.e.b, v.tensor); }
Value device() {
  Value v = Value::of_kind(VK::kDevice);
  v.text = "cpu";
  return v;
}
Value run_float(Term t) {
  Value out(aten::fresh(ops::cast(ops::reshape(t, {}), DType::kF64, false)));
  out.tensor.wrapped = true;
  return out;
}

// ---- shapes
Value integers(const std::vector<sym::Expr>& all) {
  std::vector<Value> items;
  for (const sym::Expr e : all) items.push_back(Value::of_integer(e));
  return Value::list(std::move(items));
}
Result size(const Call& c) {
  const aten::Shape shape = aten::shape_of(c.e.b, c.at(0).tensor);
  if (!c.has(1)) return integers(shape);
  const int64_t rank = std::ssize(shape), at = c.integer(1);
  if (at < -rank || at >= rank) throw Raised{cat("dimension ", at, " of a tensor with ", rank, " dims")};
  return Value::of_integer(shape[static_cast<size_t>(at < 0 ? at + rank : at)]);
}
Result dim(const Call& c) { return Value::of_integer(aten::shape_of(c.e.b, c.at(0).tensor).size()); }
Result numel(const Call& c) { return Value::of_integer(sym::product(aten::shape_of(c.e.b, c.at(0).tensor))); }
Result stride(const Call& c) {
  const aten::Tensor& t = c.at(0).tensor;
  const aten::Shape shape = aten::shape_of(c.e.b, t);
  std::vector<sym::Expr> strides(shape.size());
  sym::Expr next = 1;
  for (size_t d = shape.size(); d-- > 0; next = next * shape[d]) strides[d] = next;
  if (t.strides && t.strides->size() == shape.size()) strides = *t.strides;
  if (!c.has(1)) return integers(strides);
  const int64_t at = c.integer(1);
  return Value::of_integer(strides.at(static_cast<size_t>(at < 0 ? at + std::ssize(shape) : at)));
}
Result is_contiguous(const Call& c) { return Value::of_bool(aten::is_contiguous(c.e.b, c.at(0).tensor)); }

// ---- dtypes
Result is_floating(const Call& c) {
  return Value::of_bool(is_float(read(c, c.at(0)).dtype()) && !c.at(0).tensor.complex);
}
Result is_complex(const Call& c) { return Value::of_bool(c.at(0).tensor.complex); }
Result is_signed_type(const Call& c) {
  const DType t = read(c, c.at(0)).dtype();
  return Value::of_bool(is_float(t) || is_signed(t));
}
Result element_size(const Call& c) {
  return Value::of_integer(byte_size(read(c, c.at(0)).dtype()) * (c.at(0).tensor.complex ? 2 : 1));
}
Result no(const Call&) { return Value::of_bool(0); }
Result yes(const Call&) { return Value::of_bool(1); }
Result zero(const Call&) { return Value::of_integer(0); }
Result nothing(const Call&) { return Value(); }

// ---- a tensor of one element as a number
Value item_of(const Call& c, const Value& v) {
  const Term x = read(c, v);
  if (v.tensor.complex) Evaluator::unsupported("a complex number of the run");
  if (is_bool(x.dtype())) return Value::of_bool(c.e.condition_of(v));
  if (!is_float(x.dtype())) return Value::of_integer(c.e.integer_of(v));
  return run_float(x);
}
Result item(const Call& c) { return item_of(c, c.at(0)); }

Result to_int(const Call& c) {
  const Value& v = c.at(0);
  if (v.is(VK::kString)) {
    char* end = nullptr;
    const long long n = std::strtoll(v.text.c_str(), &end, 10);
    if (v.text.empty() || *end) throw Raised{cat("ValueError: '", v.text, "' is not an integer")};
    return Value::of_integer(static_cast<int64_t>(n));
  }
  if (v.is(VK::kFloat) && !(std::abs(v.number) < 9e18))
    throw Raised{"cannot convert a float of this size to an integer"};
  return v.is_number() || v.is_tensor() ? std::optional(Value::of_integer(c.e.integer_of(v))) : std::nullopt;
}
Result to_float(const Call& c) {
  const Value& v = c.at(0);
  if (v.is(VK::kFloat) || v.is_run_float()) return v;
  if (v.is(VK::kString)) {
    char* end = nullptr;
    const double n = std::strtod(v.text.c_str(), &end);
    if (v.text.empty() || *end) throw Raised{cat("ValueError: '", v.text, "' is not a float")};
    return Value::of_float(n);
  }
  if (v.is_whole()) {
    const sym::Expr known = c.e.b.simplify(v.integer);
    if (known.is_const()) return Value::of_float(static_cast<double>(known.value()));
    return run_float(aten::scalar_of(c.e.b, to_aten(c.e.b, v), DType::kF64));
  }
  return v.is_tensor() ? std::optional(run_float(read(c, v))) : std::nullopt;
}
Result to_bool(const Call& c) { return Value::of_bool(c.e.condition_of(c.at(0))); }
Result to_string(const Call& c) { return Value::of_string(marked(c.at(0))); }

// ---- tensors of numbers: torch.tensor([[1, 2], [3, 4]])
void flatten(const Value& v, size_t depth, std::vector<int64_t>& sizes, std::vector<Value>& to) {
  if (!v.is(VK::kList)) {
    if (depth != sizes.size()) throw Raised{"the lists of torch.tensor have different lengths"};
    to.push_back(v);
    return;
  }
  const int64_t count = std::ssize(v.items());
  if (depth == sizes.size() && to.empty()) sizes.push_back(count);
  if (depth >= sizes.size() || sizes[depth] != count)
    throw Raised{"the lists of torch.tensor have different lengths"};
  for (const Value& item : v.items()) flatten(item, depth + 1, sizes, to);
}
Result tensor(const Call& c) {
  const Value& data = c.at(0);
  const Value* given = c.named(1, "dtype");
  if (data.is_tensor()) {
    if (c.name == "as_tensor" && (!given || given->is_none())) return data;
    Arguments converted;
    converted.add(data);
    if (given && !given->is_none()) converted.add(*given, "dtype");
    return call_builtin(c.e, "aten", converted.values.size() > 1 ? "to" : "clone", std::move(converted));
  }
  std::vector<int64_t> sizes;
  std::vector<Value> items;
  flatten(data, 0, sizes, items);
  DType dtype = DType::kF32;
  const auto all = [&](auto f) { return !items.empty() && std::ranges::all_of(items, f); };
  if (all([](const Value& v) { return v.is(VK::kBool); }))
    dtype = DType::kBool;
  else if (all([](const Value& v) { return v.is_whole(); }))
    dtype = DType::kI64;
  if (given && !given->is_none()) dtype = dtype_value(given->integer).dtype;
  std::vector<Term> terms;
  graph::Shape shape;
  for (const int64_t size : sizes) shape.emplace_back(size);
  const bool whole = std::ranges::all_of(items, [](const Value& v) { return v.is_whole(); });
  if (whole && !is_float(dtype)) {
    std::vector<sym::Expr> elements;
    for (const Value& v : items)
      elements.push_back(is_bool(dtype) ? sym::ne(c.e.b.simplify(v.integer), 0) : c.e.b.simplify(v.integer));
    return Value(aten::fresh({c.e.b, c.e.b.elements(elements, shape, dtype)}));
  }
  for (const Value& v : items) {
    if (!v.is_number() && !v.is_tensor()) return std::nullopt;
    terms.push_back(ops::reshape(aten::scalar_of(c.e.b, to_aten(c.e.b, v), dtype), {1}));
  }
  if (terms.empty()) {
    const Value none = Value::of_float(0);
    return Value(aten::fresh(ops::expand(aten::scalar_of(c.e.b, to_aten(c.e.b, none), dtype), shape)));
  }
  const Term flat = terms.size() == 1 ? terms[0] : ops::concat(terms, 0);
  return Value(aten::fresh(ops::reshape(flat, shape)));
}
// A number as a tensor without dims, of Python's dtype for it.
Result number_to_tensor(const Call& c) {
  const Value& v = c.at(0);
  if (v.is_tensor()) return v;
  const DType dtype = v.is(VK::kBool) ? DType::kBool : v.is(VK::kInt) ? DType::kI64 : DType::kF64;
  return Value(aten::fresh(aten::scalar_of(c.e.b, to_aten(c.e.b, v), dtype)));
}
// A tensor is asked for its elements as nested lists.
Result to_list(const Call& c) {
  const Term x = read(c, c.at(0));
  if (x.rank() != 1 || is_float(x.dtype()) || !x.dim(0).is_const()) return std::nullopt;
  std::vector<sym::Expr> all =
      c.e.b.elements_of(ops::cast(x, DType::kI64, false).id(), "item", -(int64_t{1} << 40), int64_t{1} << 40);
  return integers(all);
}

// ---- ranges
Result derive_index(const Call& c) {
  return Value::of_integer(c.at(1).integer + c.at(0).integer * c.at(2).integer);
}
Result range_length(const Call& c) {
  const int64_t step = c.integer(2);
  if (step == 0) throw Raised{"range() arg 3 must not be zero"};
  const sym::Expr span = step > 0 ? c.at(1).integer - c.at(0).integer : c.at(0).integer - c.at(1).integer;
  return Value::of_integer(sym::max(sym::ceildiv(span, std::abs(step)), 0));
}
Result make_device(const Call&) { return device(); }

struct Row {
  std::string_view name;
  Result (*run)(const Call& c);
};
constexpr Row kOfTensors[] = {
    {"Bool", to_bool},
    {"BoolImplicit", to_bool},
    {"Float", to_float},
    {"FloatImplicit", to_float},
    {"Int", to_int},
    {"IntImplicit", to_int},
    {"ScalarImplicit", item},
    {"dim", dim},
    {"element_size", element_size},
    {"get_device", zero},
    {"is_complex", is_complex},
    {"is_contiguous", is_contiguous},
    {"is_floating_point", is_floating},
    {"is_inference", yes},
    {"is_signed", is_signed_type},
    {"is_sparse", no},
    {"item", item},
    {"len", size},
    {"ndimension", dim},
    {"numel", numel},
    {"requires_grad", no},
    {"retain_grad", nothing},
    {"size", size},
    {"storage_offset", zero},
    {"stride", stride},
    {"tolist", to_list},
};
constexpr Row kOfAll[] = {
    {"__derive_index", derive_index},
    {"__range_length", range_length},
    {"as_tensor", tensor},
    {"bool", to_bool},
    {"device", make_device},
    {"float", to_float},
    {"int", to_int},
    {"is_autocast_cpu_enabled", no},
    {"is_autocast_enabled", no},
    {"is_grad_enabled", no},
    {"set_grad_enabled", nothing},
    {"str", to_string},
    {"tensor", tensor},
    {"warn", nothing},
};

// ---- ops.prim
Result raise(const Call& c) {
  const Value& message = c.at(0);
  throw Raised{message.is(VK::kString) ? message.text : "an exception"};
}
Result dtype(const Call& c) {
  if (!c.at(0).is_tensor()) return std::nullopt;
  return Value::of_integer(element_type_number(read(c, c.at(0)).dtype(), c.at(0).tensor.complex));
}
Result layout(const Call&) { return Value::of_integer(0); }
Result same_value(const Call& c) { return c.at(0); }
Result unwrap(const Call& c) {
  if (c.at(0).is_none()) throw Raised{"Unwrapping null optional"};
  return c.at(0);
}
Result tuple_index(const Call& c) {
  if (!c.at(0).sequence) return std::nullopt;
  const auto& items = c.at(0).items();
  const int64_t at = c.integer(1), size = std::ssize(items);
  if (at < -size || at >= size) throw Raised{"tuple index out of range"};
  return items[static_cast<size_t>(at < 0 ? at + size : at)];
}
// Of two numbers, or of the numbers of a list.
Result extreme(const Call& c) {
  const std::vector<Value> items = c.count() == 1 && c.at(0).sequence ? c.at(0).items() : c.given.values;
  const bool largest = c.name == "max";
  if (items.empty()) throw Raised{cat(c.name, "() arg is an empty sequence")};
  const bool whole = std::ranges::all_of(items, [](const Value& v) { return v.is_whole(); });
  if (whole) {
    sym::Expr out = items[0].integer;
    for (const Value& v : items) out = largest ? sym::max(out, v.integer) : sym::min(out, v.integer);
    return Value::of_integer(out);
  }
  const auto known = [](const Value& v) -> std::optional<double> {
    if (v.is(VK::kFloat)) return v.number;
    if (v.is_whole() && v.integer.is_const()) return static_cast<double>(v.integer.value());
    return std::nullopt;
  };
  if (std::ranges::all_of(items, [&](const Value& v) { return known(v).has_value(); })) {
    double out = *known(items[0]);
    for (const Value& v : items) out = largest ? std::max(out, *known(v)) : std::min(out, *known(v));
    return Value::of_float(out);
  }
  if (!std::ranges::all_of(items, [](const Value& v) { return v.is_number() && !v.is(VK::kComplex); }))
    return std::nullopt;
  Term out = aten::scalar_of(c.e.b, to_aten(c.e.b, items[0]), DType::kF64);
  for (const Value& v : items) {
    const Term one = aten::scalar_of(c.e.b, to_aten(c.e.b, v), DType::kF64);
    out = largest ? ops::maximum(out, one) : ops::minimum(out, one);
  }
  return run_float(out);
}
Result hidden_weights(const Call&) {
  Evaluator::unsupported("the weights are in MKLDNN's own form",
                         "torch.jit.optimize_for_inference hides weights: save the module before it");
}

// Of a list of numbers.
Result sum(const Call& c) {
  Value out = Value::of_integer(0);
  for (const Value& item : c.at(0).items()) {
    Arguments two;
    two.add(out);
    two.add(item);
    out = call_builtin(c.e, "aten", "add", std::move(two));
  }
  return out;
}

constexpr Row kPrims[] = {
    {"ConstantMKLDNNTensor", hidden_weights},
    {"NumToTensor", number_to_tensor},
    {"RaiseException", raise},
    {"TupleIndex", tuple_index},
    {"data", same_value},
    {"device", make_device},
    {"dtype", dtype},
    {"is_cpu", yes},
    {"is_cuda", no},
    {"is_meta", no},
    {"is_mkldnn", no},
    {"is_mps", no},
    {"is_nested", no},
    {"is_quantized", no},
    {"is_sparse", no},
    {"is_xpu", no},
    {"itemsize", element_size},
    {"layout", layout},
    {"max", extreme},
    {"min", extreme},
    {"requires_grad", no},
    {"tolist", to_list},
    {"type", same_value},
    {"unchecked_unwrap_optional", unwrap},
    {"unchecked_cast", same_value},
};

template <size_t n>
const Row* find(const Row (&rows)[n], const std::string& name) {
  const auto row = std::ranges::find_if(rows, [&](const Row& r) { return r.name == name; });
  return row == std::end(rows) ? nullptr : row;
}

}  // namespace

bool has_query(const std::string& name) { return find(kOfTensors, name) || find(kOfAll, name); }

Result call_query(const Call& c) {
  if (c.count() > 0 && c.at(0).is(VK::kTensor))
    if (const Row* row = find(kOfTensors, c.name)) return row->run(c);
  if (c.name == "item" && c.count() == 1 && c.at(0).is_number()) return c.at(0);
  const bool list = c.count() == 1 && c.at(0).sequence;
  if (list && (c.name == "min" || c.name == "max")) return extreme(c);
  if (list && c.name == "sum") return sum(c);
  const Row* row = find(kOfAll, c.name);
  return row ? row->run(c) : std::nullopt;
}

Result call_prim(const Call& c) {
  if (const Row* row = find(kPrims, c.name)) return row->run(c);
  return c.name == "abs" ? call_number(c) : std::nullopt;
}

}  // namespace stridec::torchscript
