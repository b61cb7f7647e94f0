// Matrix products, einsum, linear algebra.
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/linear_algebra.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Integers accumulate in their own type in PyTorch; bools are refused there.
Term product(Term x, Term y) {
  if (is_float(x.dtype())) return ops::matmul(x, y);
  return cast(ops::matmul(x, y, x.dtype()), x.dtype(), false);
}

Results linear(Context& c) {
  const Term x = c.in("input"), w = c.in("weight");
  if (w.rank() != 2) c.unsupported("linear with a weight that is not a matrix");
  const Term y = product(x, transpose(w, 0, 1));
  return {c.has("bias") ? y + c.in("bias") : y};
}
Results matmul_row(Context& c) { return {product(c.in("self"), c.in(c.names("mat2") ? "mat2" : "other"))}; }
Results mv(Context& c) { return {product(c.in("self"), c.in("vec"))}; }
Results dot(Context& c) { return {product(c.in("self"), c.in("tensor"))}; }
Results outer(Context& c) {
  const auto [x, y] = promoted(c, "self", "vec2");
  return {unsqueeze(x, {1}) * y};
}

// beta * self + alpha * product.
Results added(Context& c, Term p) {
  const auto is_one = [&](const char* n) {
    const Value& v = c.arg(n);
    return v.kind == Value::Kind::kInt ? v.integer.is_const(1)
                                       : v.kind == Value::Kind::kFloat && v.number == 1;
  };
  if (!is_one("alpha")) p = p * c.scalar("alpha", p.dtype());
  const Value& beta = c.arg("beta");
  if ((beta.kind == Value::Kind::kInt && beta.integer.is_const(0)) ||
      (beta.kind == Value::Kind::kFloat && beta.number == 0))
    return {p};  // even a NaN in self is ignored
  Term s = c.in("self");
  if (!is_one("beta")) s = s * c.scalar("beta", s.dtype());
  return {expand(s, p.shape()) + p};
}
Results addmm(Context& c) { return added(c, product(c.in("mat1"), c.in("mat2"))); }
Results baddbmm(Context& c) { return added(c, product(c.in("batch1"), c.in("batch2"))); }
Results addmv(Context& c) { return added(c, product(c.in("mat"), c.in("vec"))); }
Results addbmm(Context& c) { return added(c, reduce_sum(product(c.in("batch1"), c.in("batch2")), {0})); }
Results addr(Context& c) { return added(c, unsqueeze(c.in("vec1"), {1}) * c.in("vec2")); }

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
  const Term x = c.in("self"), y = c.in("other");
  Dims xs, ys;
  for (int64_t d : c.integers("dims_self")) xs.push_back(normal_dim(d, x.rank()));
  for (int64_t d : c.integers("dims_other")) ys.push_back(normal_dim(d, y.rank()));
  return {
      Term(c.b, dot_general(c.b, x, y, {.batch_a = {}, .batch_b = {}, .contract_a = xs, .contract_b = ys}))};
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

// Distances between the rows of two matrices.
Results cdist(Context& c) {
  const Term x = c.in("x1"), y = c.in("x2");
  const double p = c.number("p");
  const Term gap = abs(widen(unsqueeze(x, {x.rank() - 1}) - unsqueeze(y, {y.rank() - 2})));
  const int64_t last = gap.rank() - 1;
  const auto rounded = [&](Term t) -> Results { return {cast(t, x.dtype(), false)}; };
  if (p == 2) return rounded(sqrt(reduce_sum(square(gap), {last})));
  if (p == 1) return rounded(reduce_sum(gap, {last}));
  c.unsupported("cdist with another norm than 1 and 2");
}

constexpr Row kRows[] = {
    {"__matmul__", matmul_row},
    {"_cdist_forward", cdist},
    {"addbmm", addbmm},
    {"addmm", addmm},
    {"addmv", addmv},
    {"addr", addr},
    {"baddbmm", baddbmm},
    {"bmm", matmul_row},
    {"cdist", cdist},
    {"det", op_determinant},
    {"dot", dot},
    {"einsum", op_einsum},
    {"ger", outer},
    {"inverse", op_inverse},
    {"linalg_det", op_determinant},
    {"linalg_inv", op_inverse},
    {"linalg_inv_ex", op_inverse},
    {"linalg_matmul", matmul_row},
    {"linear", linear},
    {"matmul", matmul_row},
    {"mm", matmul_row},
    {"mv", mv},
    {"outer", outer},
    {"tensordot", tensordot},
    {"vdot", dot},
};

}  // namespace

std::span<const Row> contraction_rows() { return kRows; }

}  // namespace stridec::aten
