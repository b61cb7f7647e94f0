#include "compiler/frontend/aten/complex_parts.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/complex_rules.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;
using Kind = Value::Kind;

// -- linear operators: a part of the result is the result for that part of the arguments

constexpr std::string_view kLinear[] = {
    // clang-format off
    "_unsafe_index", "_unsafe_index_put", "_unsafe_masked_index", "as_strided_scatter", "block_diag",
    "broadcast_tensors", "cartesian_prod", "cat", "channel_shuffle", "column_stack", "combinations",
    "concat", "concatenate", "constant_pad_nd", "copy", "cumsum", "cumulative_trapezoid", "diag",
    "diag_embed", "diagflat", "diagonal_copy", "diagonal_scatter", "diff", "dstack", "empty", "empty_like",
    "expand_copy", "eye", "fill", "flip", "fliplr", "flipud", "full", "full_like", "gather", "gradient",
    "hstack", "im2col", "index", "index_add", "index_copy", "index_fill", "index_put", "index_select",
    "masked_fill", "masked_scatter", "mean", "meshgrid", "nan_to_num", "native_channel_shuffle", "neg",
    "negative", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "pad",
    "pixel_shuffle", "pixel_unshuffle", "put", "repeat", "repeat_interleave", "roll", "rot90", "row_stack",
    "rsub", "scalar_tensor", "scatter", "scatter_add", "select_scatter", "slice_scatter", "stack", "sum",
    "sum_to_size", "take", "take_along_dim", "tile", "trace", "trapezoid", "trapz", "tril", "triu",
    "unfold_copy", "vstack", "where", "zero", "zeros", "zeros_like",
    // clang-format on
};

// Operators that fill with ones, whose imaginary part is zero.
bool is_ones(std::string_view name) {
  return name == "ones" || name == "ones_like" || name == "new_ones" || name == "eye";
}

// Operators that take only a shape and a dtype from their argument.
bool is_shaped_like(std::string_view name) { return name.ends_with("_like") || name.starts_with("new_"); }

// -- products of two arguments, with an optional addend

struct ComplexProduct {
  const char* x;
  const char* y;
  const char* added = nullptr;
  bool conjugate_x = false;
};
const std::unordered_map<std::string_view, ComplexProduct>& products() {
  static const auto* const out = new std::unordered_map<std::string_view, ComplexProduct>{
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

// Operators on truth values: a complex number is true if its real or imaginary part is not zero.
std::span<const std::string_view> truth_operators() {
  static constexpr std::string_view kNames[] = {
      "all",        "any",         "argwhere", "count_nonzero", "logical_and",   "logical_not",
      "logical_or", "logical_xor", "nonzero",  "nonzero_numpy", "nonzero_static"};
  return kNames;
}
// Variances and standard deviations: the variance is the sum of the variances of the parts.
std::span<const std::string_view> spread_operators() {
  static constexpr std::string_view kNames[] = {"std", "std_mean", "var", "var_mean"};
  return kNames;
}

Results linear(const ComplexCall& c) {
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

// x * y + addend, where each operand may be real.
Results product(const ComplexCall& c) {
  const ComplexProduct& rule = products().at(c.name);
  const size_t x = place_of(c.schema, rule.x), y = place_of(c.schema, rule.y);
  const size_t added = rule.added ? place_of(c.schema, rule.added) : c.values.size();
  if (x >= c.values.size() || y >= c.values.size()) c.unsupported();
  for (const Value& v : c.values)
    if (v.kind == Kind::kComplex) c.unsupported();
  // The product of a part of x and a part of y, plus the real (0) or imaginary (1) part of the addend, or
  // nothing (2).
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

Results einsum(const ComplexCall& c) {
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

Term nonzero_truth(Complex z) { return logical_not(logical_and(equal(z.re, 0), equal(z.im, 0))); }

Results truth(const ComplexCall& c) {
  std::vector<Value> own = c.values;
  for (Value& v : own)
    if (is_complex(v)) v = Value(nonzero_truth(pair_of(c.b, v)));
  return c.run(std::move(own));
}

Results spread(const ComplexCall& c) {
  const Results re = c.run(c.parts(false)), im = c.run(c.parts(true));
  const Term x = as_term(c.b, re.at(0)), y = as_term(c.b, im.at(0));
  const bool deviation = c.name.starts_with("std");
  Results out{deviation ? sqrt(square(x) + square(y)) : x + y};
  if (re.size() > 1) out.push_back(joined_value(c.b, re[1], im[1]));
  return out;
}

Results equality(const ComplexCall& c) {
  const Complex x = c.pair("self"), y = c.pair("other");
  const Term same = logical_and(equal(x.re, y.re), equal(x.im, y.im));
  return {c.name == "eq" ? same : logical_not(same)};
}

// Whether the norm is one of matrices that is not a function of the absolute values of their elements.
bool needs_singular_values(const ComplexCall& c) {
  if (c.name != "linalg_matrix_norm" && c.name != "linalg_norm") return false;
  const Value& order = c.value("ord");
  if (order.kind == Kind::kString) return order.text == "nuc";
  const double n = order.kind == Kind::kFloat ? order.number
                   : order.kind == Kind::kInt && order.integer.is_const()
                       ? static_cast<double>(order.integer.value())
                       : 0;
  if (n != 2 && n != -2) return false;
  if (c.name == "linalg_matrix_norm") return true;
  return (c.given("dim") ? c.value("dim").items.size() : shape_of(c.b, c.value("self").tensor).size()) == 2;
}
// A norm of complex numbers is the norm of their absolute values.
Results norm(const ComplexCall& c) {
  c.expect_dtype();
  if (needs_singular_values(c)) c.unsupported();
  std::vector<Value> own = c.values;
  for (Value& v : own)
    if (is_complex(v)) v = Value(length(pair_of(c.b, v)));
  return c.run(std::move(own));
}

// self + value tensor1 / tensor2.
Results quotient_added(const ComplexCall& c) {
  return {
      joined_value(c.pair("self") + c.pair("value") * (c.pair("tensor1") * reciprocal(c.pair("tensor2"))))};
}
Results interpolated(const ComplexCall& c) {
  const Complex z = c.pair("self");
  return {joined_value(z + c.pair("weight") * (c.pair("end") - z))};
}
// Operators that depend only on the absolute value of the difference of two tensors.
Results distance(const ComplexCall& c) {
  const std::string_view other = c.given("target") ? "target" : c.given("x2") ? "x2" : "other";
  const size_t x = c.given("x1") ? place_of(c.schema, "x1") : 0, y = place_of(c.schema, other);
  Complex difference = c.pair(c.schema.arguments[x].name) - c.pair(other);
  std::vector<Value> own = c.values;
  if (c.given("eps")) {  // it is added to the difference
    difference.re = difference.re + scalar_of(c.b, c.value("eps"), difference.re.dtype());
    own[place_of(c.schema, "eps")] = Value::number_of(0);
  }
  const Term size = length(difference);
  own[x] = Value(size);
  own[y] = Value(expand(ops::number_like(size, 0), size.shape()));
  return c.run(std::move(own));
}
// |self - other| <= atol + rtol |other|, and equal infinities.
Results nearness(const ComplexCall& c) {
  const Complex x = c.pair("self"), y = c.pair("other");
  const Term far = length(x - y), same = logical_and(equal(x.re, y.re), equal(x.im, y.im));
  const auto number = [&](const char* name) { return scalar_of(c.b, c.value(name), far.dtype()); };
  const Term near = less_equal(far, length(y) * number("rtol") + number("atol"));
  Term out = logical_or(same, logical_and(near, equal(far - far, 0)));
  const auto no_number = [](const Complex& z) {
    return logical_or(apply(OpKind::kIsNan, z.re), apply(OpKind::kIsNan, z.im));
  };
  if (c.value("equal_nan").integer.is_const(1))
    out = logical_or(out, logical_and(no_number(x), no_number(y)));
  return {out};
}
Results adjoint(const ComplexCall& c) {
  const Results re = c.run(c.parts(false)), im = c.run(c.parts(true));
  return {joined(as_term(c.b, re.at(0)), -as_term(c.b, im.at(0)))};
}

// Without the "_" of in-place operators.
std::string_view name_of(const Schema& schema) {
  std::string_view name = schema.name;
  if (name.size() > 1 && name.ends_with("_")) name.remove_suffix(1);
  return name;
}

using Table = std::unordered_map<std::string_view, ComplexRuleFn>;
const Table& rules() {
  static const auto* const out = [] {
    auto* t = new Table{{"addcdiv", quotient_added},
                        {"adjoint", adjoint},
                        {"dist", distance},
                        {"einsum", einsum},
                        {"eq", equality},
                        {"lerp", interpolated},
                        {"frobenius_norm", norm},
                        {"isclose", nearness},
                        {"l1_loss", distance},
                        {"linalg_matrix_norm", norm},
                        {"linalg_norm", norm},
                        {"linalg_vector_norm", norm},
                        {"norm", norm},
                        {"pairwise_distance", distance},
                        {"mH", adjoint},
                        {"matrix_H", adjoint},
                        {"ne", equality},
                        {"not_equal", equality}};
    for (const std::string_view name : kLinear) t->emplace(name, linear);
    for (const auto& [name, rule] : products()) t->emplace(name, product);
    for (const std::string_view name : truth_operators()) t->emplace(name, truth);
    for (const std::string_view name : spread_operators()) t->emplace(name, spread);
    for (const auto family : {complex_function_rules(), complex_algebra_rules()})
      for (const ComplexRule& rule : family) t->emplace(rule.name, rule.apply);
    return t;
  }();
  return *out;
}

}  // namespace

bool has_complex_rule(const Schema& schema) { return rules().contains(name_of(schema)); }

std::optional<Results> by_parts(Builder& b, const Schema& schema, const std::vector<Value>& values,
                                ImportFn row) {
  const std::string_view name = name_of(schema);
  const auto rule = rules().find(name);
  if (rule == rules().end()) return std::nullopt;
  return rule->second({b, schema, values, row, name});
}

}  // namespace stridec::aten
