// Linear algebra of complex matrices, products of elements, and operators that others compute.
#include <algorithm>
#include <optional>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_rules.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/factorization.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

const char* matrix_name(const ComplexCall& c) {
  return place_of(c.schema, "A") < c.schema.arguments.size() ? "A" : "self";
}
bool flag(const ComplexCall& c, std::string_view name) {
  return c.given(name) && c.value(name).integer.is_const(1);
}
int64_t dim_of(const ComplexCall& c, int64_t rank) {
  const sym::Expr dim = c.b.simplify(c.value("dim").integer);
  if (!dim.is_const()) c.unsupported();
  return normal_dim(dim.value(), rank);
}

Results prod(const ComplexCall& c) {
  c.expect_dtype();
  Complex z = c.pair("self");
  if (!c.given("dim")) {
    const Shape flat{count(z.re.shape())};
    return {joined_value(product({reshape(z.re, flat), reshape(z.im, flat)}, 0))};
  }
  if (z.re.rank() == 0) return {joined_value(z)};
  const int64_t dim = dim_of(c, z.re.rank());
  z = product(z, dim);
  if (flag(c, "keepdim")) z = {unsqueeze(z.re, {dim}), unsqueeze(z.im, {dim})};
  return {joined_value(z)};
}
Results cumprod(const ComplexCall& c) {
  c.expect_dtype();
  const Complex z = c.pair("self");
  return {joined_value(z.re.rank() == 0 ? z : cumulative_product(z, dim_of(c, z.re.rank())))};
}

// Operators of the ring of matrices, in which real forms compute as the complex matrices do. A vector is one
// column: its parts are stacked.
Results in_ring(const ComplexCall& c) {
  std::vector<Value> own = c.values;
  std::optional<Shape> column;  // the shape of the first matrix without its last dim
  bool vector = false;
  for (Value& v : own) {
    if (!v.is_tensor()) continue;
    const Complex z = pair_of(c.b, v, float_type(result_type(c.b, c.values)));
    const Shape shape = z.re.shape();
    vector = shape.size() == 1 || (column && shape == *column);
    if (!vector && shape.size() < 2) c.unsupported();
    if (!column) column = Shape(shape.begin(), shape.end() - 1);
    v = vector ? Value(concat({z.re, z.im}, z.re.rank() - 1)) : Value(real_form(z));
  }
  Results out = c.run(std::move(own));
  const Term y = as_term(c.b, out.at(0));
  const int64_t last = y.rank() - 1;
  if (!vector) {
    out[0] = joined_value(from_real_form(y));
  } else {
    const sym::Expr n = c.b.simplify(sym::floordiv(y.dim(last), 2));
    out[0] = joined_value({slice(y, last, 0, n), slice(y, last, n, n)});
  }
  return out;
}

Results called(const ComplexCall& c, const char* name, std::vector<NamedValue> arguments) {
  return call(c.b, *find_schema("aten", name, ""), std::move(arguments));
}
Complex swapped(const Complex& z) {
  const int64_t rank = z.re.rank();
  if (rank < 2) fail(ErrorKind::kDoesNotFit, "bad-argument", "a matrix must have two dims");
  return {transpose(z.re, rank - 2, rank - 1), transpose(z.im, rank - 2, rank - 1)};
}
Complex triangle_of(const Complex& z, bool upper, bool unit) {
  const Complex kept{triangle(z.re, 0, upper), triangle(z.im, 0, upper)};
  if (!unit) return kept;
  const int64_t rank = z.re.rank();
  const Term diagonal = eye(z.re.builder(), {z.re.dim(rank - 2), z.re.dim(rank - 1)}, 0);
  return {select(diagonal, 1, kept.re), select(diagonal, 0, kept.im)};
}
Results solve_triangular(const ComplexCall& c) {
  const Complex a = triangle_of(c.pair("self"), flag(c, "upper"), flag(c, "unitriangular"));
  return called(c, "linalg_solve",
                {{"A", joined_value(a)}, {"B", joined_value(c.pair("B"))}, {"left", c.value("left")}});
}
Results triangular_solve(const ComplexCall& c) {
  Complex a = triangle_of(c.pair("A"), flag(c, "upper"), flag(c, "unitriangular"));
  if (flag(c, "transpose")) a = swapped(a);
  Results out = called(c, "linalg_solve", {{"A", joined_value(a)}, {"B", joined_value(c.pair("self"))}});
  out.push_back(c.value("A"));
  return out;
}
Results cholesky(const ComplexCall& c) {
  const Complex lower = cholesky(c.pair("self"));
  Results out{joined_value(flag(c, "upper") ? conjugate(swapped(lower)) : lower)};
  if (c.name == "linalg_cholesky_ex") {
    const Shape& shape = lower.re.shape();
    out.emplace_back(filled(c.b, Shape(shape.begin(), shape.end() - 2), DType::kI32, 0));
  }
  return out;
}
// The matrix of a Cholesky factor.
Value matrix_of_factor(const ComplexCall& c, Complex lower) {
  if (flag(c, "upper")) lower = conjugate(swapped(lower));
  lower = triangle_of(lower, false, false);
  return called(c, "matmul",
                {{"self", joined_value(lower)}, {"other", joined_value(conjugate(swapped(lower)))}})[0];
}
Results cholesky_solve(const ComplexCall& c) {
  return called(c, "linalg_solve",
                {{"A", matrix_of_factor(c, c.pair("input2"))}, {"B", joined_value(c.pair("self"))}});
}
Results cholesky_inverse(const ComplexCall& c) {
  return called(c, "linalg_inv", {{"A", matrix_of_factor(c, c.pair("self"))}});
}
// ---- factors ----
Term nothing(const ComplexCall& c, DType dtype) { return filled(c.b, {sym::Expr(0)}, dtype, 0); }
Value no_numbers(const ComplexCall& c, DType dtype) {
  return joined_value({nothing(c, dtype), nothing(c, dtype)});
}
Results qr(const ComplexCall& c) {
  const Complex z = c.pair(matrix_name(c));
  const bool old = c.name == "qr";
  const std::string mode = old ? flag(c, "some") ? "reduced" : "complete" : c.value("mode").text;
  if (mode != "reduced" && mode != "complete" && mode != "r")
    fail(ErrorKind::kDoesNotFit, "bad-argument", "mode is reduced, complete or r");
  const OrthogonalFactors<Complex> f = orthogonal_factors(z, mode == "complete");
  return {mode == "r" ? no_numbers(c, z.re.dtype()) : joined_value(f.q), joined_value(f.r)};
}
Results geqrf(const ComplexCall& c) {
  const Reflections<Complex> h = reflections(c.pair("self"));
  return {joined_value(h.packed), joined_value(h.scale)};
}
Results householder_product(const ComplexCall& c) {
  const bool old = c.name == "orgqr";
  const Complex z = c.pair(old ? "self" : "input");
  return {joined_value(orthogonal(z, c.pair(old ? "input2" : "tau"), z.re.dim(z.re.rank() - 1)))};
}
// One triangle is read, and the real parts of the diagonal.
Complex hermitian(const ComplexCall& c, const Complex& z, bool upper) {
  const int64_t rank = z.re.rank();
  const Complex kept = triangle_of(z, upper, false), other = conjugate(swapped(kept));
  const Term diagonal = eye(c.b, {z.re.dim(rank - 2), z.re.dim(rank - 1)}, 0);
  return {select(diagonal, kept.re, kept.re + other.re), select(diagonal, 0, kept.im + other.im)};
}
Results eigh(const ComplexCall& c) {
  const Complex z = c.pair(matrix_name(c));
  const HermitianEigenvalues<Complex> e = symmetric_eigenvalues(hermitian(c, z, c.value("UPLO").text == "U"));
  if (c.name == "linalg_eigvalsh") return {e.values};
  const bool vectors = !c.given("compute_v") || flag(c, "compute_v");
  return {e.values, vectors ? joined_value(e.vectors) : no_numbers(c, z.re.dtype())};
}
Results svd(const ComplexCall& c) {
  const Complex z = c.pair(matrix_name(c));
  const DType dtype = z.re.dtype();
  const bool old = c.name == "svd", full = old ? !flag(c, "some") : flag(c, "full_matrices");
  const SingularValues<Complex> s = singular_values(z);
  if (c.given("compute_uv") && !flag(c, "compute_uv")) {
    if (old) c.unsupported();
    return {no_numbers(c, dtype), s.values, no_numbers(c, dtype)};
  }
  const SingularVectors<Complex> of = singular_vectors(s, full, dtype);
  return {joined_value(of.left), s.values, joined_value(old ? of.right : conjugate(swapped(of.right)))};
}
Results svdvals(const ComplexCall& c) { return {singular_values(c.pair(matrix_name(c))).values}; }
Results logsumexp(const ComplexCall& c) {
  const Complex z = c.pair("self");
  const int64_t rank = z.re.rank();
  Dims dims;
  for (const Value& d : c.value("dim").items) {
    const sym::Expr dim = c.b.simplify(d.integer);
    if (!dim.is_const()) c.unsupported();
    if (rank > 0) dims.push_back(normal_dim(dim.value(), rank));
  }
  if (dims.empty()) dims = all_dims(rank);
  std::ranges::sort(dims);
  // The largest real part is subtracted if it is finite.
  const Term top = rank == 0 ? z.re : stop_gradient(reduce_max(z.re, dims, kKeep));
  const Term shift = select(apply(OpKind::kIsInf, top), 0, top);
  Complex sum = pair_of(c.b, called(c, "exp", {{"self", joined_value({z.re - shift, z.im})}})[0]);
  if (rank > 0) sum = {reduce_sum(sum.re, dims, kKeep), reduce_sum(sum.im, dims, kKeep)};
  Complex out = pair_of(c.b, called(c, "log", {{"self", joined_value(sum)}})[0]);
  out.re = out.re + shift;
  if (rank > 0 && !flag(c, "keepdim")) out = {squeeze(out.re, dims), squeeze(out.im, dims)};
  return {joined_value(out)};
}
Results multi_dot(const ComplexCall& c) {
  const std::vector<Value>& all = c.values.at(0).items;
  if (all.empty()) c.unsupported();
  Value out = all[0];
  for (size_t i = 1; i < all.size(); ++i) out = called(c, "matmul", {{"self", out}, {"other", all[i]}})[0];
  return {out};
}

Results det(const ComplexCall& c) { return {joined_value(determinant(c.pair(matrix_name(c))))}; }
Results slogdet(const ComplexCall& c) {
  const SignedLog<Complex> s = log_determinant(c.pair(matrix_name(c)));
  return {joined_value(s.sign), s.log};
}
Results logdet(const ComplexCall& c) {
  const SignedLog<Complex> s = log_determinant(c.pair("self"));
  return {joined_value({s.log, apply(OpKind::kAtan2, s.sign.im, s.sign.re)})};
}

// Indexing by a mask of the shape that both have together.
Results selection(const ComplexCall& c) {
  const Shape shape = broadcast(
      c.b, {shape_of(c.b, c.value("self").tensor), shape_of(c.b, c.value("mask").tensor)}, "masked_select");
  const Complex z = c.pair("self");
  const Value mask(expand(as_term(c.b, c.value("mask")), shape));
  const Value all = joined_value({expand(z.re, shape), expand(z.im, shape)});
  return call(c.b, *find_schema("aten", "index", "Tensor"),
              {{"self", all}, {"indices", Value::list({mask})}});
}

constexpr ComplexRule kRules[] = {
    {"_linalg_det", det},
    {"_linalg_eigh", eigh},
    {"_linalg_slogdet", slogdet},
    {"_linalg_solve_ex", in_ring},
    {"_linalg_svd", svd},
    {"chain_matmul", multi_dot},
    {"cholesky", cholesky},
    {"cholesky_inverse", cholesky_inverse},
    {"cholesky_solve", cholesky_solve},
    {"cumprod", cumprod},
    {"det", det},
    {"geqrf", geqrf},
    {"inverse", in_ring},
    {"linalg_cholesky", cholesky},
    {"linalg_cholesky_ex", cholesky},
    {"linalg_det", det},
    {"linalg_eigh", eigh},
    {"linalg_eigvalsh", eigh},
    {"linalg_householder_product", householder_product},
    {"linalg_inv", in_ring},
    {"linalg_inv_ex", in_ring},
    {"linalg_matrix_exp", in_ring},
    {"linalg_matrix_power", in_ring},
    {"linalg_multi_dot", multi_dot},
    {"linalg_qr", qr},
    {"linalg_slogdet", slogdet},
    {"linalg_solve", in_ring},
    {"linalg_solve_ex", in_ring},
    {"linalg_solve_triangular", solve_triangular},
    {"linalg_svd", svd},
    {"linalg_svdvals", svdvals},
    {"logdet", logdet},
    {"logsumexp", logsumexp},
    {"masked_select", selection},
    {"matrix_exp", in_ring},
    {"matrix_power", in_ring},
    {"orgqr", householder_product},
    {"prod", prod},
    {"qr", qr},
    {"slogdet", slogdet},
    {"svd", svd},
    {"triangular_solve", triangular_solve},
};

}  // namespace

std::span<const ComplexRule> complex_algebra_rules() { return kRules; }

}  // namespace stridec::aten
