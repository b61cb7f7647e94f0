// Helper functions of generated kernels, as text; each is printed once per kernel and width, if it is used.
//
// In a snippet "f32@" is the scalar type f32 or its vector of the requested width ("f32x16"), and # is the
// width. Helpers are overloaded on their argument types, so that scalar and vector statements look alike.
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

// Returns a snippet by name; throws an internal error for an unknown name. T is a type of emit_text.cpp's
// table, F is f32 or f64, D is a storage float:
//   div.T rem.T mod.T shl.T shr.T   integers; division by zero and shifts beyond the width give 0
//   rem.F mod.F                     fmod, and the remainder with the divisor's sign
//   min.F max.F                     NaN if either is NaN
//   select.T                        sd_select(boolxW, a, b); vectors only
//   bits                            the lanes of a boolxW as the low bits of a u64
//   from_bits                       lanes from the low bits of a u64
//   iota.i32 iota.i64               {0, 1, 2, ...}; vectors only
//   floordiv.T mod_floor.T          of index vectors
//   to.D from.D                     f32 to and from the bits of D ("to.f16"; saturating: "to_sat.f8e5m2")
//   odd                             f64 to f32 rounded to odd, after which rounding to fewer bits is exact
//   mload.T mstore.T                AVX-512 masked vector access:
//                                   sd_mload(pointer, bits), sd_mstore(pointer, bits, v)
//   beside.2 beside.4               bytes of several vectors, interleaved in the lanes of an i32xW
//   exp.F ...                       the functions of math_text.h
// `f16c`: the target has conversion instructions for half floats.
const Snippet& find_snippet(std::string_view name, int width, bool f16c);

}  // namespace stridec::codegen
