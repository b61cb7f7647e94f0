// Tile registers (Intel AMX) on any machine: C++ definitions of their instructions, placed before a kernel's
// text instead of the compiler's built-in functions.
#pragma once

#include <string>

#include "compiler/base/target.h"

namespace stridec::test {

// This machine with tile registers. If it has none, tiles_prelude() emulates them.
inline CpuTarget target_with_tiles() {
  CpuTarget target = cpu_target("native");
  target.vector_bytes = 64;
  target.amx_bf16 = target.amx_int8 = true;
  return target;
}

// Using a register without a shape, or shapes that do not match, traps as the instructions do.
inline std::string tiles_prelude() {
  if (cpu_target("native").amx_bf16 && cpu_target("native").amx_int8) return "";
  return R"(
namespace sd_tiles {
struct Shape { unsigned char palette, start_row, reserved[14]; unsigned short bytes[16]; unsigned char rows[16]; };
static Shape shape;
static unsigned char data[8][16][64];
static inline void need(bool met) { if (!met) __builtin_trap(); }
static inline void configure(const void* given) {
  __builtin_memcpy(&shape, given, sizeof shape);
  __builtin_memset(data, 0, sizeof data);
  need(shape.palette == 1);
  for (int t = 0; t < 16; ++t) need(shape.bytes[t] <= 64 && shape.rows[t] <= 16 && (t < 8 || !shape.rows[t]));
}
static inline void used(int t) { need(shape.palette == 1 && shape.rows[t] && shape.bytes[t]); }
static inline void load(int t, const void* from, long step) {
  used(t);
  for (int r = 0; r < shape.rows[t]; ++r)
    for (int i = 0; i < shape.bytes[t]; ++i) data[t][r][i] = ((const unsigned char*)from + r * step)[i];
}
static inline void store(int t, void* to, long step) {
  used(t);
  for (int r = 0; r < shape.rows[t]; ++r)
    for (int i = 0; i < shape.bytes[t]; ++i) ((unsigned char*)to + r * step)[i] = data[t][r][i];
}
static inline void zero(int t) {
  used(t);
  __builtin_memset(data[t], 0, sizeof data[t]);
}
template <class T> static inline T word(int t, int row, int at) {
  T value;
  __builtin_memcpy(&value, data[t][row] + at * sizeof(T), sizeof(T));
  return value;
}
// A group of k of each column in 32 bits, summed in T: `factor` is an element's number.
template <class T, class A, class B, class F> static inline void product(int c, int a, int b, F factor) {
  used(a), used(b), used(c);
  need(shape.rows[c] == shape.rows[a] && shape.bytes[c] == shape.bytes[b] && shape.bytes[a] == 4 * shape.rows[b]);
  const int group = 4 / sizeof(A);
  for (int r = 0; r < shape.rows[c]; ++r)
    for (int n = 0; n < shape.bytes[c] / 4; ++n) {
      T sum = word<T>(c, r, n);
      for (int k = 0; k < shape.bytes[a] / (int)sizeof(A); ++k)
        sum += (T)factor(word<A>(a, r, k)) * (T)factor(word<B>(b, k / group, n * group + k % group));
      __builtin_memcpy(data[c][r] + n * 4, &sum, 4);
    }
}
// The instruction takes subnormal factors as 0 and tells nobody.
static inline float widened(unsigned short bits) {
  const unsigned all = bits & 0x7f80 ? (unsigned)bits << 16 : 0;
  float value;
  __builtin_memcpy(&value, &all, 4);
  return value;
}
static inline int whole(int value) { return value; }
}
#define __builtin_ia32_tile_loadconfig(p) sd_tiles::configure(p)
#define __builtin_ia32_tilerelease() (void)(sd_tiles::shape.palette = 0)
#define __builtin_ia32_tileloadd64(t, p, step) sd_tiles::load(t, p, step)
#define __builtin_ia32_tilestored64(t, p, step) sd_tiles::store(t, p, step)
#define __builtin_ia32_tilezero(t) sd_tiles::zero(t)
#define __builtin_ia32_tdpbf16ps(c, a, b) \
  sd_tiles::product<float, unsigned short, unsigned short>(c, a, b, sd_tiles::widened)
#define __builtin_ia32_tdpbssd(c, a, b) sd_tiles::product<int, signed char, signed char>(c, a, b, sd_tiles::whole)
#define __builtin_ia32_tdpbsud(c, a, b) sd_tiles::product<int, signed char, unsigned char>(c, a, b, sd_tiles::whole)
#define __builtin_ia32_tdpbusd(c, a, b) sd_tiles::product<int, unsigned char, signed char>(c, a, b, sd_tiles::whole)
#define __builtin_ia32_tdpbuud(c, a, b) sd_tiles::product<int, unsigned char, unsigned char>(c, a, b, sd_tiles::whole)
)";
}

}  // namespace stridec::test
