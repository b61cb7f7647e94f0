// MatMul, Gemm, Einsum and Det.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_matmul(Context& c) { return {matmul(c.in(0), c.in(1))}; }

Outputs gemm(Context& c) {
  Term a = c.in(0), b = c.in(1);
  if (a.rank() != 2 || b.rank() != 2)
    c.does_not_fit(cat("operands of rank ", a.rank(), " and ", b.rank(), " are not matrices"));
  if (c.integer("transA", 0)) a = transpose(a, 0, 1);
  if (c.integer("transB", 0)) b = transpose(b, 0, 1);
  Term y = matmul(a, b);
  const double alpha = c.number("alpha", 1), beta = c.number("beta", 1);
  if (alpha != 1) y = y * alpha;
  if (!c.has(2) || beta == 0) return {y};
  const Term bias = unidirectional(c.in(2), y.shape(), "C");
  return {y + (beta == 1 ? bias : bias * beta)};
}

Outputs op_einsum(Context& c) {
  std::vector<Term> operands;
  for (size_t i = 0; i < c.input_count(); ++i) operands.push_back(c.in(i));
  return {einsum(c.text("equation", ""), operands)};
}

Outputs det(Context& c) {
  const Term x = c.in(0);
  if (x.rank() < 2) c.does_not_fit("a determinant of a tensor without rows and columns");
  return {determinant(x)};
}

constexpr Row kRows[] = {
    {"Det", det},
    {"Einsum", op_einsum},
    {"Gemm", gemm},
    {"MatMul", op_matmul},
};

}  // namespace

std::span<const Row> contraction_rows() { return kRows; }

}  // namespace stridec::onnx
