// MatMul, Gemm, Einsum and Det.
#include "compiler/ops/composite/contraction.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/linear_algebra.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_matmul(Context& c) { return {matmul(c.in(0), c.in(1))}; }

Outputs op_gemm(Context& c) {
  const auto operand = [&](size_t input, const char* flag) {
    const Term x = c.in(input);
    return c.integer(flag, 0) && x.rank() == 2 ? transpose(x, 0, 1) : x;
  };
  return {gemm(operand(0, "transA"), operand(1, "transB"), c.optional(2), c.number("alpha", 1),
               c.number("beta", 1))};
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
    {"Gemm", op_gemm},
    {"MatMul", op_matmul},
};

}  // namespace

std::span<const Row> contraction_rows() { return kRows; }

}  // namespace stridec::onnx
