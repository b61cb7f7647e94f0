// Helper functions of generated kernels, as text: printed once per kernel and width, only where used.
//
// In a text "f32@" is the scalar type f32 or its vector of the width in question ("f32x16"), and # is the
// width. Helpers are overloaded on their argument types, so that scalar and vector statements read alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stridec::codegen {

struct Snippet {
  std::string name;  // "select.f32"
  std::vector<std::string> needs;
  std::string text;
};

// Throws an internal error for a name that is not known. Names (T: a type of emit_text.cpp's table, F: f32 or
// f64):
//   div.T rem.T mod.T shl.T shr.T   integers; divisions by zero and shifts beyond the width give 0
//   rem.F mod.F                     fmod, and the remainder with the divisor's sign
//   min.F max.F                     NaN if either is NaN
//   select.T                        sd_select(boolxW, a, b); vectors only
//   bits                            the lanes of a boolxW as the low bits of a u64; lanes from bits:
//   from_bits iota.i32 iota.i64               {0, 1, 2, ...}; vectors only floordiv.T mod_floor.T          of
//   index vectors to.D from.D                     f32 to and from the bits of storage float D ("to.f16",
//   saturating: "to_sat.f8e5m2") odd                             f64 to f32 rounded to odd, after which a
//   rounding to fewer bits is exact mload.T mstore.T                AVX-512 masked vector access:
//   sd_mload(pointer, bits), sd_mstore(pointer, bits, v) the functions of math_text.h: "exp.f32", ...
//   beside.2 beside.4               bytes of several vectors next to each other in the lanes of an i32xW
// `f16c`: half floats have conversion instructions.
const Snippet& find_snippet(std::string_view name, int width, bool f16c);

}  // namespace stridec::codegen
