// Programs as the compiler would generate them, written by hand, so that the runtime is tested through its C
// API with nothing of the compiler.
#pragma once

#include "stridec/abi.h"

// What stridec_get_api's model_open finds: see scale() below.
extern "C" const stridec_abi_program stridec_program;

namespace fake {

// x f32 [batch, n], scale f32 [n] -> y f32 [batch, n] = x * scale + bias, total f32 [batch] = row sums of x *
// scale. 1 <= batch <= 64, 1 <= n <= 4096. bias is the weights' one float. Steps "multiply", "add", "sum";
// uses the arena for x * scale and the scratch for the sums.
const stridec_abi_program& scale();

// x f32 [n] -> index i64 [count]: the positions of what is not zero, their number known only in the run.
// 0 <= n. Uses an allocated slot.
const stridec_abi_program& nonzero();

// table f32 [rows, 4], index i64 [k] -> out f32 [k, 4]. An index out of range is a failure with position and
// value.
const stridec_abi_program& gather();

// x f32 [4] -> sum f32 [4] = total + x, where the state total f32 [4] begins at the weights' first four
// floats, and the state calls i64 [] counts from zero.
const stridec_abi_program& counter();

// shape i64 [2], x f32 [] -> y f32 [a, b] filled with x, where a and b are the values of shape (0..100).
const stridec_abi_program& expand();

// x bf16 [n] -> y bf16 [n], copied; q u4 [n] -> r u4 [n], copied.
const stridec_abi_program& narrow();

// Like scale(), with variants that no machine has before one that all have.
const stridec_abi_program& variants();

extern float weights[4];  // of scale() and counter()

}  // namespace fake
