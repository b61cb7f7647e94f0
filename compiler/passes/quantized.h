// Rewrites contractions of dequantised values as integer contractions.
//
//   dot_general(float(int(qa) - za) * sa, float(int(qb) - zb) * sb)    DequantizeLinear, then a GEMM
//   = float(dot_general(qa - za, qb - zb)) * (sa * sb)
//
// It also handles integer GEMMs without scales (MatMulInteger, ConvInteger, QLinear*). The integer GEMM is
// exact. It replaces the float GEMMs of a quantised model, so that a sum is rounded once instead of at every
// step. The result differs from the model's float arithmetic by rounding, which a later QuantizeLinear limits
// to 0 or 1 steps of its scale.
//
// GEMMs of scaled 8-bit floats (float8e4m3fn, float8e5m2; their zero points are 0) become GEMMs on the 8-bit
// values that accumulate in f32, followed by one scale. Targets with suitable tensor cores use the 8-bit
// operands directly; others widen them.
//
// Zero points are split off where one operand is constant and fits bytes without its zero point, so that both
// operands stay bytes: sum((qa - za) * b) = sum(qa * b) - za * sum(b), with padding by za. Signed data are
// treated as unsigned with a zero point that is 128 higher. Grouped convolutions do the same with 16-bit
// constants. In all other cases the operands are 16-bit differences.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void contract_quantized(graph::Graph& graph);

}  // namespace stridec::passes
