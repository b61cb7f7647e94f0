// Contractions of quantised numbers in integers.
//
//   dot_general(float(int(qa) - za) * sa, float(int(qb) - zb) * sb)    as DequantizeLinear before a product makes it
//   = float(dot_general(qa - za, qb - zb)) * (sa * sb)
//
// and the same of integer products without scales (MatMulInteger, ConvInteger, QLinear*). The integer product is exact;
// a quantised model's products of floats are replaced by it, so that a sum is rounded once instead of at every step:
// what the model gives then differs from its text in floats by rounding, which a later QuantizeLinear makes 0 or 1
// steps of its scale.
//
// Products of floats of 8 bits with scales (float8e4m3fn, float8e5m2; their zero points are 0) become products of these
// as they are, added up in f32, with one scale behind: targets with tensor cores for them take them as they lie, others
// widen them.
//
// Zero points are taken apart so that both factors are bytes as they stand wherever one factor is constant and its
// numbers without their zero point are bytes again: sum((qa - za) * b) = sum(qa * b) - za * sum(b), where padding is by
// za. Signed data are taken for unsigned ones with a zero point 128 higher. Convolutions of groups take constants of 16 bits
// likewise. Everywhere else factors are 16-bit differences.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void contract_quantized(graph::Graph& graph);

}  // namespace stridec::passes
