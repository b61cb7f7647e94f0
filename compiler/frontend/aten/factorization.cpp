// Factors of matrices, singular values and eigenvalues, and what is computed from them.
#include <algorithm>
#include <optional>

#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_value.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/factorization.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term matrix(Context& c) { return c.in(c.names("A") ? "A" : c.names("self") ? "self" : "input"); }
Term swapped(Term x) { return transpose(x, x.rank() - 2, x.rank() - 1); }
Term nothing(Context& c, DType dtype) { return filled(c.b, {sym::Expr(0)}, dtype, 0); }

// ---- factors ----
Results linalg_qr(Context& c) {
  const Term x = matrix(c);
  const std::string mode = c.schema.name == "qr" ? c.flag("some") ? "reduced" : "complete" : c.text("mode");
  if (mode != "reduced" && mode != "complete" && mode != "r")
    c.does_not_fit("mode is reduced, complete or r");
  const OrthogonalFactors<Term> f = orthogonal_factors(x, mode == "complete");
  return {mode == "r" ? nothing(c, x.dtype()) : f.q, f.r};
}
Results geqrf(Context& c) {
  const Reflections<Term> h = reflections(c.in("self"));
  return {h.packed, h.scale};
}
Results householder_product(Context& c) {
  const bool old = c.schema.name == "orgqr";
  const Term x = c.in(old ? "self" : "input");
  return {orthogonal(x, c.in(old ? "input2" : "tau"), x.dim(x.rank() - 1))};
}
Results ormqr(Context& c) {
  const Term x = c.in("self"), other = c.in("input3");
  Term q = orthogonal(x, c.in("input2"), x.dim(x.rank() - 2));
  if (c.flag("transpose")) q = swapped(q);
  return {c.flag("left") ? matmul(q, other) : matmul(other, q)};
}
TriangularFactors factors_of(Context& c) {
  if (!c.flag("pivot")) c.unsupported("factors without an exchange of rows");
  return triangular_factors(matrix(c));
}
Results lu_factor(Context& c) {
  const TriangularFactors f = factors_of(c);
  Results out{f.packed, f.pivots};
  if (c.schema.name == "linalg_lu_factor") return out;
  // The first step without a pivot, counted from 1.
  const Term upper = upper_factor(f.packed);
  const int64_t rank = upper.rank();
  const Term on = eye(c.b, {upper.dim(rank - 2), upper.dim(rank - 1)}, 0);
  const Term none = cast(equal(reduce_sum(select(on, upper, 0), {rank - 1}), 0), DType::kI32);
  out.emplace_back(
      select(equal(reduce_max(none, {rank - 2}), 1), cast(arg_max(none, rank - 2) + 1.0, DType::kI32), 0));
  return out;
}
Results linalg_lu(Context& c) {
  const TriangularFactors f = factors_of(c);
  return {exchanges(f.pivots, f.packed.dim(f.packed.rank() - 2), f.packed.dtype()), lower_factor(f.packed),
          upper_factor(f.packed)};
}
Results lu_unpack(Context& c) {
  const Term x = c.in("LU_data");
  const bool data = c.flag("unpack_data");
  Results out{c.flag("unpack_pivots") ? exchanges(c.in("LU_pivots"), x.dim(x.rank() - 2), x.dtype())
                                      : nothing(c, x.dtype())};
  out.emplace_back(data ? lower_factor(x) : nothing(c, x.dtype()));
  out.emplace_back(data ? upper_factor(x) : nothing(c, x.dtype()));
  return out;
}
Results lu_solve(Context& c) {
  const bool old = c.schema.name == "lu_solve";
  const Term x = c.in(old ? "LU_data" : "LU"), pivots = c.in(old ? "LU_pivots" : "pivots");
  Term a =
      matmul(exchanges(pivots, x.dim(x.rank() - 2), x.dtype()), matmul(lower_factor(x), upper_factor(x)));
  if (!old && c.flag("adjoint")) a = swapped(a);
  return call(c.b, *find_schema("aten", "linalg_solve", ""),
              {{"A", Value(a)},
               {"B", Value(c.in(old ? "self" : "B"))},
               {"left", old ? Value::condition(sym::Expr(1)) : c.arg("left")}});
}
Results cholesky_inverse(Context& c) {
  const Term x = c.in("self"), kept = triangle(x, 0, c.flag("upper"));
  return {inverse(c.flag("upper") ? matmul(swapped(kept), kept) : matmul(kept, swapped(kept)))};
}

// ---- singular values and eigenvalues ----
Results eigh(Context& c) {
  const Term x = matrix(c);
  const HermitianEigenvalues<Term> e = symmetric_eigenvalues(symmetric(x, c.text("UPLO") == "U"));
  if (c.schema.name == "linalg_eigvalsh") return {e.values};
  const bool vectors = !c.names("compute_v") || c.flag("compute_v");
  return {e.values, vectors ? e.vectors : nothing(c, x.dtype())};
}
Results svd(Context& c) {
  const Term x = matrix(c);
  const bool old = c.schema.name == "svd", full = old ? !c.flag("some") : c.flag("full_matrices");
  const SingularValues<Term> s = singular_values(x);
  if (c.names("compute_uv") && !c.flag("compute_uv")) {
    if (old) c.unsupported("svd without u and v, which linalg.svdvals computes");
    return {nothing(c, x.dtype()), s.values, nothing(c, x.dtype())};
  }
  const SingularVectors<Term> of = singular_vectors(s, full, x.dtype());
  return {of.left, s.values, old ? of.right : swapped(of.right)};
}
Results svdvals(Context& c) { return {singular_values(matrix(c)).values}; }

// Singular values of a matrix, and the size up to which they count as 0.
struct Ranked {
  SingularValues<Term> s;
  Term cutoff;
};
Ranked ranked(Context& c) {
  Term x = matrix(c);
  if (c.names("hermitian") && c.flag("hermitian")) x = symmetric(x, false);
  const SingularValues<Term> s = singular_values(x);
  const DType dtype = s.right.dtype();
  const int64_t last = s.values.rank() - 1;
  const auto given = [&](const char* name) -> std::optional<Term> {
    if (!c.names(name) || !c.has(name)) return std::nullopt;
    return cast(as_term(c.b, c.arg(name)), dtype, false);
  };
  std::optional<Term> least = given("tol"), part = given("rcond");
  if (!least && !part) least = given("atol"), part = given("rtol");
  const Term sizes =
      size_as(c.b, dtype, sym::max(x.dim(x.rank() - 2), x.dim(x.rank() - 1))) * machine_epsilon(dtype);
  if (!part) part = least ? select(greater(*least, 0), 0, sizes) : sizes;
  if (c.names("tol")) part = number(c.b, dtype, 0);
  const Term largest = maximum(reduce_max(widen(s.values), {last}), 0);
  Term cutoff = largest * *part;
  if (least) cutoff = maximum(cutoff, *least);
  return {s, cutoff};
}
Results pinv(Context& c) {
  const Ranked r = ranked(c);
  return {pseudo_inverse(r.s, r.cutoff, matrix(c).dtype())};
}
Results matrix_rank(Context& c) {
  const Ranked r = ranked(c);
  const int64_t last = r.s.values.rank() - 1;
  return {reduce_sum(cast(greater(widen(r.s.values), unsqueeze(r.cutoff, {r.cutoff.rank()})), DType::kI64),
                     {last})};
}
Results cond(Context& c) {
  const Term x = c.in("self");
  const Value& p = c.arg("p");
  const auto is = [&](double n) {
    return (p.kind == Value::Kind::kFloat && p.number == n) ||
           (p.kind == Value::Kind::kInt && p.integer.is_const() &&
            static_cast<double>(p.integer.value()) == n);
  };
  if (!c.has("p") || is(2) || is(-2)) {
    const Term s = singular_values(x).values;
    const Term largest = slice(s, s.rank() - 1, 0, 1), least = flip(s, {s.rank() - 1});
    const Term smallest = slice(least, s.rank() - 1, 0, 1);
    return {squeeze(is(-2) ? smallest / largest : largest / smallest, {s.rank() - 1})};
  }
  const auto norm = [&](Term t) {
    const bool text = p.kind == Value::Kind::kString;
    return as_term(c.b, call(c.b, *find_schema("aten", "linalg_matrix_norm", text ? "str_ord" : ""),
                             {{"self", Value(t)}, {"ord", p}})[0]);
  };
  return {norm(x) * norm(inverse(x))};
}
// The inverse of a tensor whose first `ind` dims are the rows of a square matrix.
Results tensorinv(Context& c) {
  const Term x = c.in("self");
  const int64_t rows = c.integer("ind");
  if (rows <= 0 || rows > x.rank()) c.does_not_fit(cat("ind is ", rows, " for a tensor of rank ", x.rank()));
  const Shape first(x.shape().begin(), x.shape().begin() + rows),
      last(x.shape().begin() + rows, x.shape().end());
  Shape out = last;
  out.insert(out.end(), first.begin(), first.end());
  return {reshape(inverse(reshape(x, {count(first), count(last)})), out)};
}
// The solution of a product of tensors over the last dims of `self`, to which `dims` are moved before.
Results tensorsolve(Context& c) {
  Term a = c.in("self");
  const Term b = c.in("other");
  if (c.has("dims")) {
    Dims order, moved = c.listed_dims("dims", a.rank());
    for (int64_t d = 0; d < a.rank(); ++d)
      if (std::ranges::find(moved, d) == moved.end()) order.push_back(d);
    order.insert(order.end(), moved.begin(), moved.end());
    a = permute(a, order);
  }
  if (b.rank() > a.rank()) c.does_not_fit(cat("other has rank ", b.rank(), ", self ", a.rank()));
  const Shape out(a.shape().begin() + b.rank(), a.shape().end());
  const sym::Expr n = count(b.shape());
  return {reshape(solve(reshape(a, {n, count(out)}), reshape(b, {n, sym::Expr(1)})), out)};
}
// Of a general matrix, real or complex: complex values, and vectors in columns.
Results eig(Context& c) {
  const Value& given = c.arg("self");
  const Term x = as_term(c.b, given);
  const bool vectors = c.schema.name == "linalg_eig";
  const EigenPairs e =
      eigenvalues(is_float(x.dtype()) ? x : cast(x, DType::kF32, false), is_complex(given), vectors);
  const auto complex = [](Term t) {
    Tensor out = fresh(t);
    out.complex = true;
    return out;
  };
  if (!vectors) return {complex(e.values)};
  return {complex(e.values), complex(*e.vectors)};
}

// A real or complex operand of lstsq. Its real form has twice the rows: the real parts, then the imaginary
// ones.
Term matrix_form(Context& c, const Value& v, bool vector, bool complex, bool square) {
  Complex z = pair_of(c.b, v);
  if (vector) z = each(z, [](Term t) { return unsqueeze(t, {t.rank()}); });
  if (z.re.rank() < 2) c.does_not_fit(cat("a matrix is wanted, not ", to_string(z.re.shape())));
  if (!complex) return z.re;
  return square ? real_form(z) : concat({z.re, z.im}, z.re.rank() - 2);
}

// LAPACK's drivers differ in what they state besides the solution, which is the one of least norm.
Results lstsq(Context& c) {
  const Value &self = c.arg("self"), &other = c.arg("b");
  const bool complex = is_complex(self) || is_complex(other);
  const Shape of_a = pair_of(c.b, self).re.shape(), of_b = pair_of(c.b, other).re.shape();
  const bool vector =
      of_b.size() + 1 == of_a.size() && std::ranges::equal(of_b, std::span(of_a).first(of_b.size()));
  const Term a = matrix_form(c, self, false, complex, true),
             b = matrix_form(c, other, vector, complex, false);
  const std::string driver = c.has("driver") ? c.text("driver") : "gelsy";
  if (driver != "gelsy" && driver != "gels" && driver != "gelsd" && driver != "gelss")
    c.does_not_fit("driver is gels, gelsy, gelsd or gelss");
  const sym::Expr m = of_a[of_a.size() - 2], n = of_a.back();
  const double rcond = c.optional_number("rcond").value_or(-1);
  const Term part = rcond >= 0 ? number(c.b, a.dtype(), rcond)
                               : size_as(c.b, a.dtype(), sym::max(m, n)) * machine_epsilon(a.dtype());
  const LeastSquares found = least_squares(a, b, part);
  const Term x = found.solution;
  const int64_t rank = x.rank(), last = rank - 1;
  const Value solution = [&]() -> Value {
    const auto shaped = [&](Term t) { return vector ? squeeze(t, {last}) : t; };
    if (!complex) return shaped(x);
    return joined_value({shaped(slice(x, rank - 2, 0, n)), shaped(slice(x, rank - 2, n, n))});
  }();
  Results out{solution};
  const bool tall = c.b.holds(sym::gt(m, n));
  if (driver != "gelsy" && !tall && !c.b.holds(sym::le(m, n)))
    c.unsupported(
        "lstsq of a matrix that may have more rows than columns or not, with a driver that states residuals");
  out.emplace_back(driver == "gelsy" || !tall ? nothing(c, x.dtype())
                                              : reduce_sum(square(matmul(a, x) - b), {rank - 2}));
  const double parts = complex ? 2 : 1;  // the real form has each singular value twice
  out.emplace_back(driver == "gels" ? nothing(c, DType::kI64) : apply(OpKind::kDiv, found.rank, parts));
  const bool values = driver == "gelsd" || driver == "gelss";
  const int64_t of_values = found.values.rank() - 1;
  const sym::Expr kept = c.b.simplify(sym::min(m, n));
  const auto one_of_two = [&](Term t) {
    Shape shape = t.shape();
    shape.back() = kept;
    shape.emplace_back(2);
    return squeeze(slice(reshape(t, shape), of_values + 1, 0, 1), {of_values + 1});
  };
  out.emplace_back(!values ? nothing(c, x.dtype()) : complex ? one_of_two(found.values) : found.values);
  return out;
}

Results matrix_exp(Context& c) { return {matrix_exponential(c.in("self"))}; }

constexpr Row kRows[] = {
    {"_linalg_eigh", eigh},
    {"_linalg_eigvals", eig, Numbers::kComplex},
    {"_linalg_svd", svd},
    {"_lu_with_info", lu_factor},
    {"cholesky_inverse", cholesky_inverse},
    {"geqrf", geqrf},
    {"linalg_cond", cond},
    {"linalg_eig", eig, Numbers::kComplex},
    {"linalg_eigh", eigh},
    {"linalg_eigvals", eig, Numbers::kComplex},
    {"linalg_eigvalsh", eigh},
    {"linalg_householder_product", householder_product},
    {"linalg_lstsq", lstsq, Numbers::kComplex},
    {"linalg_lu", linalg_lu},
    {"linalg_lu_factor", lu_factor},
    {"linalg_lu_factor_ex", lu_factor},
    {"linalg_lu_solve", lu_solve},
    {"linalg_matrix_exp", matrix_exp},
    {"linalg_matrix_rank", matrix_rank},
    {"linalg_pinv", pinv},
    {"linalg_qr", linalg_qr},
    {"linalg_svd", svd},
    {"linalg_svdvals", svdvals},
    {"linalg_tensorinv", tensorinv},
    {"linalg_tensorsolve", tensorsolve},
    {"lu_solve", lu_solve},
    {"lu_unpack", lu_unpack},
    {"matrix_exp", matrix_exp},
    {"orgqr", householder_product},
    {"ormqr", ormqr},
    {"pinverse", pinv},
    {"qr", linalg_qr},
    {"svd", svd},
};

}  // namespace

std::span<const Row> factorization_rows() { return kRows; }

}  // namespace stridec::aten
