// Matrix products, einsum, linear algebra.
#include <algorithm>
#include <limits>
#include <optional>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Integers accumulate in their own type in PyTorch; bools are refused there.
Term product(Term x, Term y) {
  if (is_float(x.dtype())) return ops::matmul(x, y);
  return cast(ops::matmul(x, y, x.dtype()), x.dtype(), false);
}
// The product of narrow floats in f32, for an addend: the sum is rounded once, as by PyTorch's kernels.
Term wide_product(Term x, Term y) {
  return is_float(x.dtype()) ? ops::matmul(x, y, compute_dtype(x.dtype())) : product(x, y);
}

Results linear(Context& c) {
  const Term x = c.in("input"), w = c.in("weight");
  if (w.rank() > 2) c.unsupported("linear with a weight of more than two dims");
  const Term factor = w.rank() == 2 ? transpose(w, 0, 1) : w;
  if (!c.has("bias")) return {product(x, factor)};
  const Term y = wide_product(x, factor);
  return {cast(y + cast(c.in("bias"), y.dtype(), false), x.dtype(), false)};
}
Results matmul_row(Context& c) { return {product(c.in("self"), c.in(c.names("mat2") ? "mat2" : "other"))}; }
Results mv(Context& c) { return {product(c.in("self"), c.in("vec"))}; }
Results dot(Context& c) { return {product(c.in("self"), c.in(c.names("tensor") ? "tensor" : "other"))}; }
Term outer_product(Term x, Term y) {
  const Term column = unsqueeze(x, {1});
  return is_bool(x.dtype()) ? logical_and(expand(column, {x.dim(0), y.dim(0)}), y) : column * y;
}
Results outer(Context& c) {
  const auto [x, y] = promoted(c, "self", "vec2");
  return {outer_product(x, y)};
}

// beta * self + alpha * product, in the product's type, as self's.
Results added(Context& c, Term p) {
  const auto is_one = [&](const char* n) {
    const Value& v = c.arg(n);
    return v.kind == Value::Kind::kInt ? v.integer.is_const(1)
                                       : v.kind == Value::Kind::kFloat && v.number == 1;
  };
  const DType type = c.in("self").dtype();
  if (!is_one("alpha")) p = p * c.scalar("alpha", p.dtype());
  const Value& beta = c.arg("beta");
  if ((beta.kind == Value::Kind::kInt && beta.integer.is_const(0)) ||
      (beta.kind == Value::Kind::kFloat && beta.number == 0))
    return {cast(p, type, false)};  // even a NaN in self is ignored
  Term s = cast(c.in("self"), p.dtype(), false);
  if (!is_one("beta")) s = s * c.scalar("beta", s.dtype());
  return {cast(expand(s, p.shape()) + p, type, false)};
}
Results addmm(Context& c) { return added(c, wide_product(c.in("mat1"), c.in("mat2"))); }
Results baddbmm(Context& c) { return added(c, wide_product(c.in("batch1"), c.in("batch2"))); }
Results addmv(Context& c) { return added(c, wide_product(c.in("mat"), c.in("vec"))); }
Results addbmm(Context& c) { return added(c, reduce_sum(product(c.in("batch1"), c.in("batch2")), {0})); }
Results addr(Context& c) {
  const Term p = outer_product(c.in("vec1"), c.in("vec2"));
  if (!is_bool(p.dtype())) return added(c, p);
  const Term self = expand(c.in("self"), p.shape());
  const auto kept = [&](const char* factor, Term x) {
    return logical_and(x, expand(c.scalar(factor, DType::kBool), p.shape()));
  };
  return {logical_or(kept("beta", self), kept("alpha", p))};
}

Results op_einsum(Context& c) {
  const std::vector<Term> operands = c.terms("tensors");
  DType to = operands.empty() ? DType::kF32 : operands[0].dtype();
  for (Term t : operands)
    if (t.dtype() != to) c.unsupported("einsum of different dtypes");
  std::string equation;
  for (char ch : c.text("equation"))
    if (ch != ' ') equation += ch;
  return {cast(einsum(equation, operands), to, false)};
}
Results tensordot(Context& c) {
  Term x = c.in("self"), y = c.in("other");
  const Dims xs = c.listed_dims("dims_self", x.rank()), ys = c.listed_dims("dims_other", y.rank());
  // A dim of size 1 stretches: the other operand is summed along its own.
  for (size_t i = 0; i < xs.size() && i < ys.size(); ++i) {
    const bool one_x = x.dim(xs[i]).is_const(1), one_y = y.dim(ys[i]).is_const(1);
    if (one_x && !one_y) y = reduce_sum(y, {ys[i]}, kKeep);
    if (one_y && !one_x) x = reduce_sum(x, {xs[i]}, kKeep);
  }
  return {
      Term(c.b, dot_general(c.b, x, y, {.batch_a = {}, .batch_b = {}, .contract_a = xs, .contract_b = ys}))};
}

// Sums of products over the last dims, and over one dim of operands that broadcast.
Results inner(Context& c) {
  const Term x = c.in("self"), y = c.in("other");
  if (x.rank() == 0 || y.rank() == 0) return {x * y};
  return {Term(
      c.b, dot_general(
               c.b, x, y,
               {.batch_a = {}, .batch_b = {}, .contract_a = {x.rank() - 1}, .contract_b = {y.rank() - 1}}))};
}
Results vecdot(Context& c) {
  const auto [x, y] = promoted(c, "x", "y");
  const Term products = widen(x) * widen(y);
  return {cast(reduce_sum(products, {c.dim("dim", products.rank())}), x.dtype(), false)};
}
Results cross(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  const Shape shape = (x + y).shape();
  int64_t dim = -1;
  if (c.has("dim")) {
    dim = c.dim("dim", std::ssize(shape));
  } else {
    for (int64_t d = 0; d < std::ssize(shape) && dim < 0; ++d)
      if (shape[static_cast<size_t>(d)].is_const(3)) dim = d;
    if (dim < 0) c.does_not_fit("cross needs a dim of size 3");
  }
  return {cross_product(expand(x, shape), expand(y, shape), dim)};
}
// x1 w x2 for each of w [outputs, n, m].
Results bilinear(Context& c) {
  const Term x = c.in("input1"), y = c.in("input2"), w = c.in("weight");
  const Term z = einsum("...i,oij,...j->...o", {x, w, y});
  return {c.has("bias") ? z + c.in("bias") : z};
}
// What run_decompositions() makes of bilinear: the product of three tensors, each with dims of size 1 at its
// expand..., summed over `sumdim`.
Results trilinear(Context& c) {
  const std::vector<Term> operands{c.in("i1"), c.in("i2"), c.in("i3")};
  const int64_t rank = operands[0].rank() + static_cast<int64_t>(c.integers("expand1").size());
  const auto without = [&](const Dims& absent) {
    std::string letters;
    for (int64_t i = 0; i < rank; ++i)
      if (std::find(absent.begin(), absent.end(), i) == absent.end()) letters += static_cast<char>('a' + i);
    return letters;
  };
  std::string equation, reached;
  for (const char* name : {"expand1", "expand2", "expand3"}) {
    const std::string letters = without(c.integers(name));
    equation += (equation.empty() ? "" : ",") + letters;
    reached += letters;
  }
  const std::string kept = without(c.integers("sumdim"));
  if (kept.find_first_not_of(reached) != std::string::npos)
    c.unsupported("_trilinear with a dim that no operand has");
  return {cast(einsum(equation + "->" + kept, operands), operands[0].dtype(), false)};
}
Results multi_dot(Context& c) {
  std::vector<Term> all = c.terms(c.names("matrices") ? "matrices" : "tensors");
  if (all.empty()) c.does_not_fit("a product of no matrices");
  Term out = all[0];
  for (size_t i = 1; i < all.size(); ++i) out = product(out, all[i]);
  return {out};
}
Results matrix_power(Context& c) {
  Term x = c.in("self");
  int64_t n = c.integer("n");
  const int64_t rank = x.rank();
  if (rank < 2) c.does_not_fit("a matrix must have two dims");
  if (n < 0) x = inverse(x), n = -n;
  if (n == 0) {
    const Shape shape{x.dim(rank - 2), x.dim(rank - 1)};
    return {expand(cast(eye(c.b, shape, 0), x.dtype(), false), x.shape())};
  }
  std::optional<Term> out;
  for (;; x = product(x, x)) {
    if (n & 1) out = out ? product(*out, x) : x;
    n >>= 1;
    if (n == 0) return {*out};
  }
}

// b as matrices with the outer dims of both; a vector is one column.
Results solve_of(Context& c, Term a, Term b, bool left, bool vector) {
  const DType to = a.dtype();
  if (vector) b = unsqueeze(b, {b.rank()});
  if (!left) a = transpose(a, a.rank() - 2, a.rank() - 1), b = transpose(b, b.rank() - 2, b.rank() - 1);
  const auto outer = [](Term t) { return Shape(t.shape().begin(), t.shape().end() - 2); };
  const Shape both = broadcast(c.b, {outer(a), outer(b)}, "solve");
  const auto spread = [&](Term t) {
    Shape shape = both;
    shape.insert(shape.end(), t.shape().end() - 2, t.shape().end());
    return expand(t, shape);
  };
  Term x = solve(widen(spread(a)), widen(spread(b)));
  if (!left) x = transpose(x, x.rank() - 2, x.rank() - 1);
  return {cast(vector ? squeeze(x, {x.rank() - 1}) : x, to, false)};
}
Results linalg_solve(Context& c) {
  const Term a = c.in("A"), b = c.in("B");
  // As PyTorch: b is a vector if it has one dim, or a's shape without the last one.
  bool vector = b.rank() == 1;
  if (!vector && b.rank() == a.rank() - 1) {
    vector = true;
    for (int64_t d = 0; d < b.rank(); ++d) vector = vector && b.dim(d) == a.dim(d);
  }
  Results out = solve_of(c, a, b, c.flag("left"), vector);
  if (c.schema.name == "_linalg_solve_ex") out.resize(3, Value::failed());  // no factors
  if (c.schema.name != "linalg_solve")
    out.emplace_back(filled(c.b, Shape(a.shape().begin(), a.shape().end() - 2), DType::kI32, 0));
  return out;
}
Term triangle_of(Context& c, Term a, bool upper, bool unit) {
  const Term kept = triangle(a, 0, upper);
  return unit ? select(eye(c.b, {a.dim(a.rank() - 2), a.dim(a.rank() - 1)}, 0), 1, kept) : kept;
}
Results solve_triangular(Context& c) {
  const Term a = triangle_of(c, c.in("self"), c.flag("upper"), c.flag("unitriangular"));
  return solve_of(c, a, c.in("B"), c.flag("left"), false);
}
Results triangular_solve(Context& c) {
  Term a = triangle_of(c, c.in("A"), c.flag("upper"), c.flag("unitriangular"));
  if (c.flag("transpose")) a = transpose(a, a.rank() - 2, a.rank() - 1);
  Results out = solve_of(c, a, c.in("self"), true, false);
  out.emplace_back(c.in("A"));
  return out;
}
Results op_cholesky(Context& c) {
  const Term x = c.in("self"), lower = cholesky(x);
  Results out{c.flag("upper") ? transpose(lower, lower.rank() - 2, lower.rank() - 1) : lower};
  if (c.schema.name == "linalg_cholesky_ex")
    out.emplace_back(filled(c.b, Shape(x.shape().begin(), x.shape().end() - 2), DType::kI32, 0));
  return out;
}
Results cholesky_solve(Context& c) {
  Term l = c.in("input2");
  const auto flipped = [](Term t) { return transpose(t, t.rank() - 2, t.rank() - 1); };
  if (c.flag("upper")) l = flipped(l);
  l = triangle_of(c, l, false, false);
  return solve_of(c, product(l, flipped(l)), c.in("self"), true, false);
}
Results slogdet(Context& c) {
  const SignedLog s = log_determinant(c.in(c.names("A") ? "A" : "self"));
  return {s.sign, s.log};
}
Results logdet(Context& c) {
  const SignedLog s = log_determinant(c.in("self"));
  return {select(less(s.sign, 0), std::numeric_limits<double>::quiet_NaN(), s.log)};
}

Results op_inverse(Context& c) {
  const Term y = inverse(c.in(c.names("A") ? "A" : "self"));
  if (c.schema.name == "linalg_inv_ex") {
    Shape outer(y.shape().begin(), y.shape().end() - 2);
    return {y, filled(c.b, outer, DType::kI32, 0)};
  }
  return {y};
}
Results op_determinant(Context& c) { return {determinant(c.in(c.names("A") ? "A" : "self"))}; }

constexpr Row kRows[] = {
    {"__matmul__", matmul_row},
    {"_linalg_det", op_determinant},
    {"_linalg_slogdet", slogdet},
    {"_linalg_solve_ex", linalg_solve},
    {"_trilinear", trilinear},
    {"addbmm", addbmm},
    {"addmm", addmm},
    {"addmv", addmv},
    {"addr", addr},
    {"baddbmm", baddbmm},
    {"bilinear", bilinear},
    {"bmm", matmul_row},
    {"chain_matmul", multi_dot},
    {"cholesky", op_cholesky},
    {"cholesky_solve", cholesky_solve},
    {"cross", cross},
    {"det", op_determinant},
    {"dot", dot},
    {"einsum", op_einsum},
    {"ger", outer},
    {"inner", inner},
    {"inverse", op_inverse},
    {"linalg_cholesky", op_cholesky},
    {"linalg_cholesky_ex", op_cholesky},
    {"linalg_cross", cross},
    {"linalg_det", op_determinant},
    {"linalg_inv", op_inverse},
    {"linalg_inv_ex", op_inverse},
    {"linalg_matmul", matmul_row},
    {"linalg_matrix_power", matrix_power},
    {"linalg_multi_dot", multi_dot},
    {"linalg_slogdet", slogdet},
    {"linalg_solve", linalg_solve},
    {"linalg_solve_ex", linalg_solve},
    {"linalg_solve_triangular", solve_triangular},
    {"linalg_vecdot", vecdot},
    {"linear", linear},
    {"logdet", logdet},
    {"matmul", matmul_row},
    {"matrix_power", matrix_power},
    {"mm", matmul_row},
    {"mv", mv},
    {"outer", outer},
    {"slogdet", slogdet},
    {"tensordot", tensordot},
    {"triangular_solve", triangular_solve},
    {"vdot", dot},
};

}  // namespace

std::span<const Row> contraction_rows() { return kRows; }

}  // namespace stridec::aten
