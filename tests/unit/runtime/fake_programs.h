// Hand-written programs in the form that the compiler generates, to test the runtime through its C API
// without the compiler.
#pragma once

#include "stridec/abi.h"

// The program that stridec_get_api's model_open finds: see scale() below.
extern "C" const stridec_abi_program stridec_program;

namespace fake {

// x f32 [batch, n], scale f32 [n] -> y f32 [batch, n] = x * scale + bias, total f32 [batch] = row sums of x *
// scale. 1 <= batch <= 64, 1 <= n <= 4096. bias is the only float of the weights. Steps "multiply", "add",
// "sum"; x * scale is in the arena, the sums are in scratch.
const stridec_abi_program& scale();

// x f32 [n] -> index i64 [count]: the positions of nonzero elements; count is known at run time only. 0 <= n.
// Uses an allocated slot.
const stridec_abi_program& nonzero();

// table f32 [rows, 4], index i64 [k] -> out f32 [k, 4]. An index out of range fails with position and value.
const stridec_abi_program& gather();

// x f32 [4] -> sum f32 [4] = total + x. The state total f32 [4] starts as the weights' first four floats; the
// state calls i64 [] counts from zero.
const stridec_abi_program& counter();

// shape i64 [2], x f32 [] -> y f32 [a, b] filled with x, where a and b are the values of shape (0..100).
const stridec_abi_program& expand();

// x bf16 [n] -> y bf16 [n], copied; q u4 [n] -> r u4 [n], copied.
const stridec_abi_program& narrow();

// Like scale(), with variants that no machine supports before one that every machine supports.
const stridec_abi_program& variants();

extern float weights[4];  // used by scale() and counter()

}  // namespace fake
