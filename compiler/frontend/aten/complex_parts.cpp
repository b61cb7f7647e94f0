#include "compiler/frontend/aten/complex_parts.h"

#include <algorithm>
#include <numbers>
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;
using Kind = Value::Kind;

struct Pair {
  Term re, im;
};

// -- operators that are linear in what they move: the results' parts are the results of the parts

const std::unordered_set<std::string_view>& linear_operators() {
  static const auto* const out = new std::unordered_set<std::string_view>{"_unsafe_index",
                                                                          "_unsafe_index_put",
                                                                          "_unsafe_masked_index",
                                                                          "as_strided_scatter",
                                                                          "block_diag",
                                                                          "broadcast_tensors",
                                                                          "cartesian_prod",
                                                                          "cat",
                                                                          "channel_shuffle",
                                                                          "column_stack",
                                                                          "combinations",
                                                                          "concat",
                                                                          "concatenate",
                                                                          "constant_pad_nd",
                                                                          "copy",
                                                                          "cumsum",
                                                                          "cumulative_trapezoid",
                                                                          "diag",
                                                                          "diag_embed",
                                                                          "diagflat",
                                                                          "diagonal_copy",
                                                                          "diagonal_scatter",
                                                                          "diff",
                                                                          "dstack",
                                                                          "empty",
                                                                          "empty_like",
                                                                          "expand_copy",
                                                                          "eye",
                                                                          "fill",
                                                                          "flip",
                                                                          "fliplr",
                                                                          "flipud",
                                                                          "full",
                                                                          "full_like",
                                                                          "gather",
                                                                          "gradient",
                                                                          "hstack",
                                                                          "im2col",
                                                                          "index",
                                                                          "index_add",
                                                                          "index_copy",
                                                                          "index_fill",
                                                                          "index_put",
                                                                          "index_select",
                                                                          "masked_fill",
                                                                          "masked_scatter",
                                                                          "mean",
                                                                          "meshgrid",
                                                                          "nan_to_num",
                                                                          "native_channel_shuffle",
                                                                          "neg",
                                                                          "negative",
                                                                          "new_empty",
                                                                          "new_full",
                                                                          "new_ones",
                                                                          "new_zeros",
                                                                          "ones",
                                                                          "ones_like",
                                                                          "pad",
                                                                          "pixel_shuffle",
                                                                          "pixel_unshuffle",
                                                                          "put",
                                                                          "repeat",
                                                                          "repeat_interleave",
                                                                          "roll",
                                                                          "rot90",
                                                                          "row_stack",
                                                                          "rsub",
                                                                          "scalar_tensor",
                                                                          "scatter",
                                                                          "scatter_add",
                                                                          "select_scatter",
                                                                          "slice_scatter",
                                                                          "stack",
                                                                          "sum",
                                                                          "sum_to_size",
                                                                          "take",
                                                                          "take_along_dim",
                                                                          "tile",
                                                                          "trace",
                                                                          "trapezoid",
                                                                          "trapz",
                                                                          "tril",
                                                                          "triu",
                                                                          "unfold_copy",
                                                                          "vstack",
                                                                          "where",
                                                                          "zero",
                                                                          "zeros",
                                                                          "zeros_like"};
  return *out;
}

// Their imaginary parts are zero unless a number says otherwise.
bool is_ones(std::string_view name) {
  return name == "ones" || name == "ones_like" || name == "new_ones" || name == "eye";
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Arguments that say where or how far, not what.
bool is_control(std::string_view name) {
  return is_any_of(name, {"index", "indices", "mask", "condition", "repeats", "x", "spacing"});
}
// Numbers among the arguments that are moved.
bool is_moved_number(std::string_view name) {
  return is_any_of(name, {"value", "fill_value", "s", "self", "other"});
}
// Operators that take only a shape and a dtype from their argument.
bool is_shaped_like(std::string_view name) { return name.ends_with("_like") || name.starts_with("new_"); }

// -- products of two arguments, plus a third one

struct Product {
  const char* x;
  const char* y;
  const char* added = nullptr;
  bool conjugate_x = false;
};
const std::unordered_map<std::string_view, Product>& products() {
  static const auto* const out = new std::unordered_map<std::string_view, Product>{
      {"_convolution", {"input", "weight", "bias"}},
      {"addbmm", {"batch1", "batch2", "self"}},
      {"addcmul", {"tensor1", "tensor2", "self"}},
      {"addmm", {"mat1", "mat2", "self"}},
      {"addmv", {"mat", "vec", "self"}},
      {"addr", {"vec1", "vec2", "self"}},
      {"baddbmm", {"batch1", "batch2", "self"}},
      {"bmm", {"self", "mat2"}},
      {"conv1d", {"input", "weight", "bias"}},
      {"conv2d", {"input", "weight", "bias"}},
      {"conv3d", {"input", "weight", "bias"}},
      {"conv_transpose1d", {"input", "weight", "bias"}},
      {"conv_transpose2d", {"input", "weight", "bias"}},
      {"conv_transpose3d", {"input", "weight", "bias"}},
      {"convolution", {"input", "weight", "bias"}},
      {"cross", {"self", "other"}},
      {"dot", {"self", "tensor"}},
      {"ger", {"self", "vec2"}},
      {"inner", {"self", "other"}},
      {"kron", {"self", "other"}},
      {"linalg_cross", {"self", "other"}},
      {"linalg_matmul", {"self", "other"}},
      {"linalg_vecdot", {"x", "y", nullptr, true}},
      {"linear", {"input", "weight", "bias"}},
      {"matmul", {"self", "other"}},
      {"mm", {"self", "mat2"}},
      {"mv", {"self", "vec"}},
      {"outer", {"self", "vec2"}},
      {"tensordot", {"self", "other"}},
      {"vdot", {"self", "other", nullptr, true}},
  };
  return *out;
}

// -- functions of one number

Term sin(Term x) { return apply(OpKind::kSin, x); }
Term cos(Term x) { return apply(OpKind::kCos, x); }
Term sinh(Term x) { return apply(OpKind::kSinh, x); }
Term cosh(Term x) { return apply(OpKind::kCosh, x); }
Term within(Term x, double bound) { return minimum(maximum(x, -bound), bound); }

Pair plus(Pair z, double n) { return {z.re + n, z.im}; }
Pair times(Pair z, double n) { return {z.re * n, z.im * n}; }
Pair times(Pair x, Pair y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
Pair inverse(Pair z) {
  const Term size = square(z.re) + square(z.im);
  return {z.re / size, -z.im / size};
}
Pair squared(Pair z) { return times(z, z); }
Pair exponential(Pair z) {
  const Term size = exp(z.re);
  return {size * cos(z.im), size * sin(z.im)};
}
// Without squares that overflow or vanish.
Term size_of(Pair z) { return length_of(z.re, z.im); }
Pair logarithm(Pair z) { return {log(size_of(z)), apply(OpKind::kAtan2, z.im, z.re)}; }
// The root with the larger part comes from a sum, so that nothing cancels; the other one from it.
Pair root(Pair z) {
  const Term larger = sqrt((size_of(z) + abs(z.re)) * 0.5), none = equal(larger, 0);
  const Term other = select(none, number_like(larger, 0), abs(z.im) / (larger * 2));
  const Term right = greater_equal(z.re, 0), below = less(z.im, 0);
  const Term im = select(right, other, larger);
  return {select(right, larger, other), select(below, -im, im)};
}
Pair hyperbolic_tangent(Pair z) {
  const Term x = within(z.re, 20) * 2, y = z.im * 2;  // beyond, it is 1 in any precision
  const Term below = cosh(x) + cos(y);
  return {sinh(x) / below, sin(y) / below};
}
Pair logistic(Pair z) {
  return inverse(plus(exponential({-within(z.re, 40), -z.im}), 1));  // exp() of more has no inverse
}
Pair direction(Pair z) {
  const Term size = size_of(z), none = equal(size, 0);
  return {select(none, number_like(size, 0), z.re / size), select(none, number_like(size, 0), z.im / size)};
}

using Function = Pair (*)(Pair z);
const std::unordered_map<std::string_view, Function>& functions() {
  static const auto* const out = new std::unordered_map<std::string_view, Function>{
      {"cos", [](Pair z) { return Pair{cos(z.re) * cosh(z.im), -(sin(z.re) * sinh(z.im))}; }},
      {"cosh", [](Pair z) { return Pair{cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im)}; }},
      {"exp", exponential},
      {"exp2", [](Pair z) { return exponential(times(z, std::numbers::ln2)); }},
      {"expm1",
       [](Pair z) {
         const Term half = sin(z.im * 0.5), size = exp(z.re);
         return Pair{(size - 1) * cos(z.im) - square(half) * 2, size * sin(z.im)};
       }},
      {"log", logarithm},
      {"log10", [](Pair z) { return times(logarithm(z), 1 / std::numbers::ln10); }},
      {"log1p", [](Pair z) { return logarithm(plus(z, 1)); }},
      {"log2", [](Pair z) { return times(logarithm(z), 1 / std::numbers::ln2); }},
      {"reciprocal", inverse},
      {"rsqrt", [](Pair z) { return inverse(root(z)); }},
      {"sgn", direction},
      {"sigmoid", logistic},
      {"silu", [](Pair z) { return times(z, logistic(z)); }},
      {"sin", [](Pair z) { return Pair{sin(z.re) * cosh(z.im), cos(z.re) * sinh(z.im)}; }},
      {"sinh", [](Pair z) { return Pair{sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im)}; }},
      {"sqrt", root},
      {"square", squared},
      {"tan",
       [](Pair z) {
         const Pair t = hyperbolic_tangent({-z.im, z.re});  // tan(z) = -i tanh(i z)
         return Pair{t.im, -t.re};
       }},
      {"tanh", hyperbolic_tangent},
  };
  return *out;
}

// -- tests, whose results are real

using Test = Term (*)(Pair z);
const std::unordered_map<std::string_view, Test>& tests() {
  static const auto* const out = new std::unordered_map<std::string_view, Test>{
      {"isfinite", [](Pair z) { return logical_and(equal(z.re - z.re, 0), equal(z.im - z.im, 0)); }},
      {"isinf", [](Pair z) { return logical_or(apply(OpKind::kIsInf, z.re), apply(OpKind::kIsInf, z.im)); }},
      {"isnan", [](Pair z) { return logical_or(apply(OpKind::kIsNan, z.re), apply(OpKind::kIsNan, z.im)); }},
      {"isreal", [](Pair z) { return equal(z.im, 0); }},
  };
  return *out;
}

// Operators of truth: a number is true if a part is not zero.
bool asks_truth(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "all",        "any",         "argwhere", "count_nonzero", "logical_and",   "logical_not",
      "logical_or", "logical_xor", "nonzero",  "nonzero_numpy", "nonzero_static"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}
// Sums of squares: of deviations, and norms of vectors.
bool is_spread(std::string_view name) {
  return name == "var" || name == "std" || name == "var_mean" || name == "std_mean";
}

// -- arguments

bool complex_value(const Value& v) {
  return is_complex(v) || v.complex_dtype || std::ranges::any_of(v.items, complex_value);
}

Pair pair_of(Builder& b, const Value& v) {
  if (v.kind == Kind::kComplex)
    return {number(b, DType::kF32, v.number), number(b, DType::kF32, v.imaginary)};
  const Term t = as_term(b, v);
  if (!v.is_tensor() || !v.tensor.complex) {
    const Term re = is_float(t.dtype()) ? t : cast(t, DType::kF32, false);
    return {re, expand(number_like(re, 0), re.shape())};
  }
  const int64_t last = t.rank() - 1;
  return {squeeze(slice(t, last, 0, 1), {last}), squeeze(slice(t, last, 1, 1), {last})};
}
Value part_of(Builder& b, const Value& v, bool imaginary) {
  Value out = v;
  for (Value& item : out.items) item = part_of(b, item, imaginary);
  if (v.kind == Kind::kComplex) return Value::number_of(imaginary ? v.imaginary : v.number);
  if (v.is_number()) return imaginary ? Value::number_of(0) : v;
  if (!v.is_tensor() || (!v.tensor.complex && !imaginary)) return out;
  const Pair z = pair_of(b, v);
  Tensor part = fresh(imaginary ? z.im : z.re);
  part.wrapped = v.tensor.wrapped;
  return part;
}

size_t place_of(const Schema& schema, std::string_view name) {
  for (size_t i = 0; i < schema.arguments.size(); ++i)
    if (schema.arguments[i].name == name) return i;
  return schema.arguments.size();
}

Value joined_value(Builder& b, const Value& re, const Value& im) {
  if (re.kind == Kind::kList && re.items.size() == im.items.size()) {
    std::vector<Value> items;
    for (size_t i = 0; i < re.items.size(); ++i) items.push_back(joined_value(b, re.items[i], im.items[i]));
    return Value::list(std::move(items));
  }
  if (!re.is_tensor() || !im.is_tensor()) return re;
  return joined(read(b, re.tensor), read(b, im.tensor));
}

struct Call {
  Builder& b;
  const Schema& schema;
  const std::vector<Value>& values;
  ImportFn row;
  std::string_view name;

  [[noreturn]] void unsupported() const {
    fail(ErrorKind::kUnsupported, "unsupported-op", schema.full_name() + " of complex numbers");
  }
  Results run(std::vector<Value> own) const {
    for (Value& v : own) v.complex_dtype = false;
    Context c(b, schema, std::move(own));
    return row(c);
  }
  // The real or imaginary part of all that is moved.
  std::vector<Value> parts(bool imaginary) const {
    std::vector<Value> out = values;
    for (size_t i = 0; i < out.size(); ++i) {
      const SchemaArgument& a = schema.arguments[i];
      if (is_control(a.name)) {
        if (complex_value(out[i])) unsupported();
        continue;
      }
      if (a.type.starts_with("Tensor") || (out[i].is_number() && is_moved_number(a.name)))
        out[i] = part_of(b, out[i], imaginary);
      else if (out[i].kind == Kind::kComplex)
        unsupported();
    }
    return out;
  }
  // A real dtype for complex arguments drops a part.
  void expect_dtype() const {
    for (const Value& v : values)
      if (v.kind == Kind::kDType && !v.complex_dtype && std::ranges::any_of(values, [](const Value& o) {
            return is_complex(o) || std::ranges::any_of(o.items, is_complex);
          }))
        unsupported();
  }
};

Results linear(const Call& c) {
  const bool real = std::ranges::any_of(
      c.values, [](const Value& v) { return v.kind == Kind::kDType && !v.complex_dtype; });
  if (real && is_shaped_like(c.name)) return c.run(c.parts(false));
  c.expect_dtype();
  const Results re = c.run(c.parts(false));
  Results out;
  if (is_ones(c.name)) {
    for (const Value& v : re) {
      const Term t = as_term(c.b, v);
      out.emplace_back(joined(t, number_like(t, 0)));
    }
    return out;
  }
  const Results im = c.run(c.parts(true));
  for (size_t i = 0; i < re.size(); ++i) out.push_back(joined_value(c.b, re[i], im[i]));
  if (is_any_of(c.name, {"broadcast_tensors", "meshgrid"}))  // real ones among the tensors stay real
    for (size_t i = 0; i < c.values[0].items.size(); ++i)
      if (!is_complex(c.values[0].items[i])) out.at(0).items.at(i) = re[0].items[i];
  return out;
}

// x y of two arguments, each of which may be real.
Results product(const Call& c, const Product& rule) {
  const size_t x = place_of(c.schema, rule.x), y = place_of(c.schema, rule.y);
  const size_t added = rule.added ? place_of(c.schema, rule.added) : c.values.size();
  if (x >= c.values.size() || y >= c.values.size()) c.unsupported();
  for (const Value& v : c.values)
    if (v.kind == Kind::kComplex) c.unsupported();
  // Of parts of x and y, with the real (0) or imaginary (1) part of the addend, or nothing (2).
  const auto term = [&](bool of_x, bool of_y, int with) {
    std::vector<Value> own = c.values;
    own[x] = part_of(c.b, own[x], of_x);
    own[y] = part_of(c.b, own[y], of_y);
    if (added < own.size() && !own[added].is_none()) {
      const bool optional = c.schema.arguments[added].type.ends_with("?");
      if (with == 2 && optional) {
        own[added] = {};
      } else {
        own[added] = part_of(c.b, own[added], with == 1);
        if (with == 2) {
          const Term t = as_term(c.b, own[added]);
          own[added] = Value(expand(number_like(t, 0), t.shape()));
        }
      }
    }
    return as_term(c.b, c.run(std::move(own)).at(0));
  };
  const bool cx = is_complex(c.values[x]), cy = is_complex(c.values[y]);
  const bool ca = added < c.values.size() && is_complex(c.values[added]);
  if (!cx && !cy) {  // the addend alone
    const Term re = term(false, false, 0);
    if (!ca) return {re};
    const Term rest = term(false, false, 2), im = term(false, false, 1);
    return {joined(re, im - rest)};
  }
  Term re = term(false, false, 0);
  if (cx && cy) {
    const Term both = term(true, true, 2);
    re = rule.conjugate_x ? re + both : re - both;
  }
  std::optional<Term> im;
  if (cy) im = term(false, true, 1);
  if (cx) {
    Term other = term(true, false, im ? 2 : 1);
    if (rule.conjugate_x) other = -other;
    im = im ? *im + other : other;
  }
  return {joined(re, *im)};
}

Results einsum(const Call& c) {
  const size_t at = place_of(c.schema, "tensors");
  const std::vector<Value>& operands = c.values.at(at).items;
  if (operands.size() > 2) c.unsupported();
  const auto term = [&](bool first, bool second) {
    std::vector<Value> own = c.values;
    const bool which[] = {first, second};
    for (size_t i = 0; i < operands.size(); ++i) own[at].items[i] = part_of(c.b, operands[i], which[i]);
    return as_term(c.b, c.run(std::move(own)).at(0));
  };
  if (operands.size() == 1) return {joined(term(false, false), term(true, false))};
  return {joined(term(false, false) - term(true, true), term(false, true) + term(true, false))};
}

Term nonzero_truth(Pair z) { return logical_not(logical_and(equal(z.re, 0), equal(z.im, 0))); }

Results truth(const Call& c) {
  std::vector<Value> own = c.values;
  for (Value& v : own)
    if (is_complex(v)) v = Value(nonzero_truth(pair_of(c.b, v)));
  return c.run(std::move(own));
}

Results spread(const Call& c) {
  const Results re = c.run(c.parts(false)), im = c.run(c.parts(true));
  const Term x = as_term(c.b, re.at(0)), y = as_term(c.b, im.at(0));
  const bool deviation = c.name.starts_with("std");
  Results out{deviation ? sqrt(square(x) + square(y)) : x + y};
  if (re.size() > 1) out.push_back(joined_value(c.b, re[1], im[1]));
  return out;
}

// z^w: integers by products, others by logarithms; 0 to anything but 0 is 0.
Results power(const Call& c) {
  const Value& w = c.values.at(1);
  const Pair z = pair_of(c.b, c.values.at(0));
  constexpr int64_t kMostProducts = 16;
  std::optional<int64_t> whole;
  if (w.kind == Kind::kInt && c.b.simplify(w.integer).is_const()) whole = c.b.simplify(w.integer).value();
  if (w.kind == Kind::kFloat && w.number == static_cast<double>(static_cast<int64_t>(w.number)))
    whole = static_cast<int64_t>(w.number);
  if (whole && std::abs(*whole) <= kMostProducts) {
    Pair out{expand(number_like(z.re, 1), z.re.shape()), expand(number_like(z.re, 0), z.re.shape())};
    for (int64_t i = 0; i < std::abs(*whole); ++i) out = i == 0 ? z : times(out, z);
    if (*whole < 0) out = inverse(out);
    return {joined(out.re, out.im)};
  }
  const Pair exponent = pair_of(c.b, w);
  const Pair out = exponential(times(logarithm(z), exponent));
  const Term zero = logical_not(nonzero_truth(z)), one = logical_not(nonzero_truth(exponent));
  const Shape shape = broadcast(c.b, {out.re.shape(), zero.shape(), one.shape()}, "pow");
  const auto all = [&](Term t) { return expand(t, shape); };
  const auto at_zero = [&](Term t, double n) {
    return select(all(zero), select(all(one), all(number_like(t, n)), all(number_like(t, 0))), all(t));
  };
  return {joined(at_zero(out.re, 1), at_zero(out.im, 0))};
}

Results equality(const Call& c) {
  const Pair x = pair_of(c.b, c.values.at(0)), y = pair_of(c.b, c.values.at(1));
  const Term same = logical_and(equal(x.re, y.re), equal(x.im, y.im));
  return {c.name == "eq" ? same : logical_not(same)};
}

// A norm of complex numbers is that of their sizes.
Results norm(const Call& c) {
  c.expect_dtype();
  std::vector<Value> own = c.values;
  for (Value& v : own)
    if (is_complex(v)) v = Value(size_of(pair_of(c.b, v)));
  return c.run(std::move(own));
}

// self + value tensor1 / tensor2.
Results quotient_added(const Call& c) {
  const auto pair = [&](const char* name) { return pair_of(c.b, c.values.at(place_of(c.schema, name))); };
  const Pair z = pair("self");
  const Pair q = times(times(pair("tensor1"), inverse(pair("tensor2"))), pair("value"));
  return {joined(z.re + q.re, z.im + q.im)};
}
// self + weight (end - self).
Results interpolated(const Call& c) {
  const Pair z = pair_of(c.b, c.values.at(0)), end = pair_of(c.b, c.values.at(1));
  const Pair way = times(pair_of(c.b, c.values.at(2)), {end.re - z.re, end.im - z.im});
  return {joined(z.re + way.re, z.im + way.im)};
}
Results distance(const Call& c) {
  const Pair x = pair_of(c.b, c.values.at(0)), y = pair_of(c.b, c.values.at(1));
  std::vector<Value> own = c.values;
  own[0] = Value(size_of({x.re - y.re, x.im - y.im}));
  const Term t = as_term(c.b, own[0]);
  own[1] = Value(expand(number_like(t, 0), t.shape()));
  return c.run(std::move(own));
}

Results adjoint(const Call& c) {
  const Results re = c.run(c.parts(false)), im = c.run(c.parts(true));
  return {joined(as_term(c.b, re.at(0)), -as_term(c.b, im.at(0)))};
}

}  // namespace

Tensor joined(Term real, Term imaginary) {
  const Shape shape = broadcast(real.builder(), {real.shape(), imaginary.shape()}, "complex");
  const DType dtype =
      real.dtype() == DType::kF64 || imaginary.dtype() == DType::kF64 ? DType::kF64 : real.dtype();
  const DType to = is_float(dtype) ? dtype : DType::kF32;
  const int64_t rank = std::ssize(shape);
  const auto part = [&](Term t) { return unsqueeze(expand(cast(t, to, false), shape), {rank}); };
  Tensor out = fresh(concat({part(real), part(imaginary)}, rank));
  out.complex = true;
  return out;
}

Term length_of(Term x, Term y) {
  const Term a = abs(x), b = abs(y), larger = maximum(a, b), smaller = minimum(a, b);
  const Term length = larger * sqrt(square(smaller / larger) + 1);
  const Term plain = logical_or(equal(larger, 0), apply(OpKind::kIsInf, larger));
  return select(expand(plain, length.shape()), larger, length);
}

bool is_complex(const Value& value) {
  return value.kind == Kind::kComplex || (value.is_tensor() && value.tensor.complex);
}

bool mentions_complex(std::span<const Value> values) { return std::ranges::any_of(values, complex_value); }

std::optional<Results> by_parts(Builder& b, const Schema& schema, const std::vector<Value>& values,
                                ImportFn row) {
  std::string_view name = schema.name;
  if (name.size() > 1 && name.ends_with("_")) name.remove_suffix(1);
  const Call c{b, schema, values, row, name};
  if (linear_operators().contains(name)) return linear(c);
  if (const auto rule = products().find(name); rule != products().end()) return product(c, rule->second);
  if (name == "einsum") return einsum(c);
  if (const auto rule = functions().find(name); rule != functions().end()) {
    const Pair out = rule->second(pair_of(b, values.at(0)));
    return Results{joined(out.re, out.im)};
  }
  if (const auto rule = tests().find(name); rule != tests().end())
    return Results{rule->second(pair_of(b, values.at(0)))};
  if (asks_truth(name)) return truth(c);
  if (is_spread(name)) return spread(c);
  if (name == "pow") return power(c);
  if (name == "eq" || name == "ne") return equality(c);
  if (name == "linalg_vector_norm") return norm(c);
  if (name == "addcdiv") return quotient_added(c);
  if (name == "lerp") return interpolated(c);
  if (name == "dist") return distance(c);
  if (name == "mH" || name == "matrix_H" || name == "adjoint") return adjoint(c);
  return std::nullopt;
}

}  // namespace stridec::aten
