// Sets the floating-point mode of each thread that runs kernels: round to nearest, denormals enabled. Results
// then depend neither on the application's mode nor on which thread runs a part.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

#if defined(__x86_64__)
using FpMode = uint32_t;
constexpr FpMode kDefaultFpMode = 0x1f80;
inline FpMode fp_mode() { return __builtin_ia32_stmxcsr(); }
inline void set_fp_mode(FpMode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
using FpMode = uint64_t;
constexpr FpMode kDefaultFpMode = 0;
inline FpMode fp_mode() {
  FpMode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void set_fp_mode(FpMode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#endif

inline void set_default_fp_mode() { set_fp_mode(kDefaultFpMode); }

}  // namespace stridec::runtime
