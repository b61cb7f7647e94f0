// Hand-written programs in the form that the compiler generates, to test the runtime through its C API
// without the compiler.
#pragma once

#include "stridec/abi.h"

// The program that stridec_get_api's model_open finds: see scale() below.
extern "C" const stridec_abi_module stridec_module;

namespace fake {

// x f32 [batch, n], scale f32 [n] -> y f32 [batch, n] = x * scale + bias, total f32 [batch] = row sums of x *
// scale. 1 <= batch <= 64, 1 <= n <= 4096. bias is the only float of the weights. Steps "multiply", "add",
// "sum"; x * scale is in the arena, the sums are in scratch.
const stridec_abi_module& scale();

// x f32 [n] -> index i64 [count]: the positions of nonzero elements; count is known at run time only. 0 <= n.
// Uses an allocated slot.
const stridec_abi_module& nonzero();

// table f32 [rows, 4], index i64 [k] -> out f32 [k, 4]. An index out of range fails with position and value.
const stridec_abi_module& gather();

// x f32 [4] -> sum f32 [4] = total + x. The state total f32 [4] starts as the weights' first four floats; the
// state calls i64 [] counts from zero.
const stridec_abi_module& counter();

// Two functions: counter, and clear, which has the output calls i64 [], takes its value from the state
// `calls` and sets that to zero.
const stridec_abi_module& functions();

// shape i64 [2], x f32 [] -> y f32 [a, b] filled with x, where a and b are the values of shape (0..100).
const stridec_abi_module& expand();

// x bf16 [n] -> y bf16 [n], copied; q u4 [n] -> r u4 [n], copied.
const stridec_abi_module& narrow();

// Like scale(), with variants that no machine supports before one that every machine supports.
const stridec_abi_module& variants();

extern float weights[4];  // used by scale() and counter()

}  // namespace fake
