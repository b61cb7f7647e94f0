// Matrix products.
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
  const Term bias = c.in(2);
  return {y + (beta == 1 ? bias : bias * beta)};
}

Outputs op_einsum(Context& c) {
  std::vector<Term> operands;
  for (size_t i = 0; i < c.input_count(); ++i) operands.push_back(c.in(i));
  return {einsum(c.text("equation", ""), operands)};
}

// The determinant of matrices by elimination with the largest pivot would need a loop; small constant sizes
// unroll.
Outputs det(Context& c) {
  const Term x = c.in(0);
  const auto n = x.rank() >= 2 ? sym::as_const(x.dim(x.rank() - 1)) : std::nullopt;
  if (!n || *n > 4 || x.dim(x.rank() - 2) != x.dim(x.rank() - 1))
    c.unsupported(
        "determinants are supported for square matrices of up to 4 x 4 whose size is known at compile time");
  const int64_t rows = x.rank() - 2, columns = x.rank() - 1;
  const auto at = [&](int64_t i, int64_t j) {
    return squeeze(slice(slice(x, rows, i, 1), columns, j, 1), {rows, columns});
  };
  // Laplace expansion along the first row, over the columns that are left.
  const auto minor = [&](auto&& self, int64_t row, const Dims& left) -> Term {
    Term sum = at(row, left[0]);
    if (left.size() == 1) return sum;
    for (size_t k = 0; k < left.size(); ++k) {
      Dims rest = left;
      rest.erase(rest.begin() + static_cast<int64_t>(k));
      const Term product = at(row, left[k]) * self(self, row + 1, rest);
      sum = k == 0 ? product : k % 2 ? sum - product : sum + product;
    }
    return sum;
  };
  Dims all;
  for (int64_t j = 0; j < *n; ++j) all.push_back(j);
  if (all.empty()) return {filled(c.b, Shape(x.shape().begin(), x.shape().end() - 2), x.dtype(), 1)};
  return {minor(minor, 0, all)};
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
