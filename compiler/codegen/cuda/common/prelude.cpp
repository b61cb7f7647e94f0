#include "compiler/codegen/cuda/common/prelude.h"

#include <map>
#include <string>
#include <tuple>

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {
namespace {

// STRIDEC_EMULATE: the tests compile kernels for the CPU, without PTX.
constexpr std::string_view kPrelude = R"(typedef long int64_t;
typedef int int32_t;
#define __FMA__ 1
#ifndef STRIDEC_EMULATE
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)
#define __builtin_copysign(x, y) copysign(x, y)
#define __builtin_copysignf(x, y) copysignf(x, y)
#define __builtin_elementwise_abs(x) sd_abs(x)
#define __builtin_elementwise_floor(x) sd_floor(x)
#define __builtin_elementwise_ceil(x) sd_ceil(x)
#define __builtin_elementwise_trunc(x) sd_trunc(x)
#define __builtin_elementwise_roundeven(x) sd_roundeven(x)
#define __builtin_elementwise_sqrt(x) sd_sqrt(x)
#define __builtin_elementwise_fma(x, y, z) sd_fused(x, y, z)
static inline float sd_abs(float x) { return fabsf(x); }
static inline double sd_abs(double x) { return fabs(x); }
static inline signed char sd_abs(signed char x) { return (signed char)(x < 0 ? -x : x); }
static inline short sd_abs(short x) { return (short)(x < 0 ? -x : x); }
static inline int sd_abs(int x) { return x < 0 ? (int)(0u - (unsigned)x) : x; }
static inline long sd_abs(long x) { return x < 0 ? (long)(0ul - (unsigned long)x) : x; }
static inline float sd_floor(float x) { return floorf(x); }
static inline double sd_floor(double x) { return floor(x); }
static inline float sd_ceil(float x) { return ceilf(x); }
static inline double sd_ceil(double x) { return ceil(x); }
static inline float sd_trunc(float x) { return truncf(x); }
static inline double sd_trunc(double x) { return trunc(x); }
static inline float sd_roundeven(float x) { return rintf(x); }
static inline double sd_roundeven(double x) { return rint(x); }
static inline float sd_sqrt(float x) { return sqrtf(x); }
static inline double sd_sqrt(double x) { return sqrt(x); }
static inline float sd_fused(float x, float y, float z) { return fmaf(x, y, z); }
static inline double sd_fused(double x, double y, double z) { return fma(x, y, z); }
#endif
struct sd_failure { int code, lock; long values[4], thread; };
// Records a failed check. If it fails in several threads, the values of the lowest thread are kept, so that the message is
// the same in each run. If several checks fail, the first to arrive is kept.
static inline void sd_fail(volatile sd_failure* slot, int64_t message, int64_t v0, int64_t v1) {
  const long thread = blockIdx.x * (long)blockDim.x + threadIdx.x;
  while (atomicCAS((int*)&slot->lock, 0, 1)) {}
  if (!slot->code || (slot->code == (int)message + 1 && thread < slot->thread)) {
    slot->values[0] = v0;
    slot->values[1] = v1;
    slot->thread = thread;
    slot->code = (int)message + 1;
  }
  __threadfence_system();
  atomicExch((int*)&slot->lock, 0);
}
)";

// Functions of CUDA's math library (most of them within 2 ulp; CUDA C++ programming guide, "mathematical
// functions").
struct Named {
  const char* name;
  const char* f32;  // null: has its own snippet
  const char* f64;
};
constexpr Named kUnary[] = {
    {"exp", "expf(x)", "exp(x)"},       {"expm1", "expm1f(x)", "expm1(x)"},
    {"log", "logf(x)", "log(x)"},       {"log1p", "log1pf(x)", "log1p(x)"},
    {"sin", "sinf(x)", "sin(x)"},       {"cos", "cosf(x)", "cos(x)"},
    {"tan", "tanf(x)", "tan(x)"},       {"asin", "asinf(x)", "asin(x)"},
    {"acos", "acosf(x)", "acos(x)"},    {"atan", "atanf(x)", "atan(x)"},
    {"sinh", "sinhf(x)", "sinh(x)"},    {"cosh", "coshf(x)", "cosh(x)"},
    {"tanh", nullptr, "tanh(x)"},       {"asinh", "asinhf(x)", "asinh(x)"},
    {"acosh", "acoshf(x)", "acosh(x)"}, {"atanh", "atanhf(x)", "atanh(x)"},
    {"erf", nullptr, "erf(x)"},
};
constexpr Named kBinary[] = {
    {"pow", "powf(x, y)", "pow(x, y)"},
    {"atan2", "atan2f(x, y)", "atan2(x, y)"},
    {"rem", "fmodf(x, y)", "fmod(x, y)"},
};

std::map<std::string, Snippet, std::less<>> make_snippets() {
  std::map<std::string, Snippet, std::less<>> out;
  auto add = [&](const std::string& name, std::vector<std::string> needs, std::string text) {
    out[name] = Snippet{name, std::move(needs), std::move(text)};
  };
  for (const char* type : {"f32", "f64"}) {
    const bool single = type[1] == '3';
    for (const Named& f : kUnary)
      if (!single || f.f32)
        add(cat(f.name, ".", type), {},
            cat("static inline ", type, " sd_", f.name, "(", type, " x) { return ", single ? f.f32 : f.f64,
                "; }\n"));
    for (const Named& f : kBinary)
      add(cat(f.name, ".", type), {},
          cat("static inline ", type, " sd_", std::string(f.name) == "rem" ? "frem" : f.name, "(", type,
              " x, ", type, " y) { return ", single ? f.f32 : f.f64, "; }\n"));
  }
  for (const char* type : {"i32", "u32", "i64", "u64"}) {
    const std::string bits = type[1] == '3' ? "int" : "long long",
                      word = type[0] == 'u' ? "unsigned " + bits : bits;
    const auto atomic = [&](const char* which, const char* function, const std::string& as) {
      add(cat("atomic_", which, ".", type), {},
          cat("static inline void sd_atomic_", which, "(", type, "* at, ", type, " x) { ", function, "((", as,
              "*)at, (", as, ")x); }\n"));
    };
    atomic("sum", "atomicAdd", "unsigned " + bits);
    atomic("max", "atomicMax", word);
    atomic("min", "atomicMin", word);
  }
  // Floats of one sign are ordered as integers. NaN is the integer that wins, for either sign; if the value
  // in memory was a NaN, which may have lost, it is restored.
  for (const auto& [type, word, most] :
       {std::tuple("f32", "int", "0x7fffffff"), {"f64", "long long", "0x7fffffffffffffffll"}})
    for (const bool max : {true, false})
      add(cat(max ? "atomic_max." : "atomic_min.", type), {},
          cat("static inline void ", max ? "sd_atomic_max(" : "sd_atomic_min(", type, "* at, ", type,
              " x) {\n  const ", word, " nan = ", max ? most : "-1", ", bits = x == x ? __builtin_bit_cast(",
              word, ", x) : nan;\n  ", type, " old;\n  if (bits < 0)\n    old = __builtin_bit_cast(", type,
              ", atomic", max ? "Min" : "Max", "((unsigned ", word, "*)at, (unsigned ", word,
              ")bits));\n  else\n    old = __builtin_bit_cast(", type, ", atomic", max ? "Max" : "Min", "((",
              word, "*)at, bits));\n  if (old != old) atomicMax((", max ? "" : "unsigned ", word, "*)at, (",
              max ? "" : "unsigned ", word, ")nan);\n}\n"));
  // exp(-x) overflows where the result is subnormal.
  add("sigmoid.f64", {},
      "static inline f64 sd_sigmoid(f64 x) {\n  const f64 e = exp(-__builtin_elementwise_abs(x));\n"
      "  return (x < 0.0 ? e : 1.0) / (1.0 + e);\n}\n");
  // Branch-free f32 activations; CUDA's erff, tanhf and exact divisions branch. A thread computes several
  // values at once, whose instructions cannot interleave across a branch.
  add("reciprocal.f32", {}, R"(#ifdef STRIDEC_EMULATE
static inline f32 sd_reciprocal(f32 x) { return 1.0f / x; }
#else
static inline f32 sd_reciprocal(f32 x) { f32 r; asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
#endif
)");
  add("sigmoid.f32", {"reciprocal.f32"},
      "static inline f32 sd_sigmoid(f32 x) {\n  const f32 e = expf(-__builtin_elementwise_abs(x));\n"
      "  return (x < 0.0f ? e : 1.0f) * sd_reciprocal(1.0f + e);\n}\n");
  // Polynomial for |x| < 0.625: (tanh x - x) / x^3 in x^2.
  add("tanh.f32", {"exp_coarse.f32", "reciprocal.f32"}, R"(static inline f32 sd_tanh(f32 x) {
  const f32 a = __builtin_elementwise_abs(x), t = x * x;
  f32 p = 0.00229274482f;
  p = __builtin_elementwise_fma(p, t, -0.00834394526f);
  p = __builtin_elementwise_fma(p, t, 0.0217689183f);
  p = __builtin_elementwise_fma(p, t, -0.0539592579f);
  p = __builtin_elementwise_fma(p, t, 0.133333042f);
  p = __builtin_elementwise_fma(p, t, -0.333333343f);
  const f32 small = __builtin_elementwise_fma(x * t, p, x);
  const f32 big = __builtin_copysignf(1.0f - 2.0f * sd_reciprocal(sd_exp_coarse(a + a) + 1.0f), x);
  return a < 0.625f ? small : big;
}
)");
  // Polynomials: erf(x) / x in x^2 below 1; log(erfc(x)) from 1 to 4.
  add("erf.f32", {"exp_coarse.f32", "product.f32"}, R"(static inline f32 sd_erf(f32 x) {
  const f32 a = __builtin_elementwise_abs(x), t = x * x, c = a > 4.0f ? 4.0f : a;
  f32 p = 7.87587487e-05f;
  p = __builtin_elementwise_fma(p, t, -0.00080168643f);
  p = __builtin_elementwise_fma(p, t, 0.00518908724f);
  p = __builtin_elementwise_fma(p, t, -0.0268542115f);
  p = __builtin_elementwise_fma(p, t, 0.112835944f);
  p = __builtin_elementwise_fma(p, t, -0.37612626f);
  p = __builtin_elementwise_fma(p, t, 1.12837911f);
  f32 l = 1.6371514e-06f;
  l = __builtin_elementwise_fma(l, c, -4.60580413e-05f);
  l = __builtin_elementwise_fma(l, c, 0.00059680565f);
  l = __builtin_elementwise_fma(l, c, -0.0047595962f);
  l = __builtin_elementwise_fma(l, c, 0.0264211353f);
  l = __builtin_elementwise_fma(l, c, -0.110080086f);
  l = __builtin_elementwise_fma(l, c, -0.631826043f);
  l = __builtin_elementwise_fma(l, c, -1.13023341f);
  l = __builtin_elementwise_fma(l, c, 0.00032013806f);
  const f32 small = sd_product(x, p), big = __builtin_copysignf(1.0f - sd_exp_coarse(l), x);
  return a < 1.0f ? small : big;
}
)");
  // As the CPU's, whose constants these are (compiler/codegen/math_text.cpp).
  add("normal_cdf.f32", {"reciprocal.f32"}, R"(static inline f32 sd_normal_cdf(f32 x) {
  const f32 a = __builtin_elementwise_abs(x), c = a > 14.42f ? 14.42f : a;
  const f32 square = c * c, low = __builtin_elementwise_fma(c, c, -square);
  const f32 inverse = sd_reciprocal(2.5f + c), t = __builtin_elementwise_fma(c, inverse, -0.5f);
  const f32 e = expf(-0.5f * square);
  f32 p = -0.080956839f;
  p = __builtin_elementwise_fma(p, t, -0.0801983848f);
  p = __builtin_elementwise_fma(p, t, 0.0874895155f);
  p = __builtin_elementwise_fma(p, t, 0.16163367f);
  p = __builtin_elementwise_fma(p, t, -0.0511900224f);
  p = __builtin_elementwise_fma(p, t, -0.262186676f);
  p = __builtin_elementwise_fma(p, t, 0.0738843009f);
  p = __builtin_elementwise_fma(p, t, 0.527948081f);
  p = __builtin_elementwise_fma(p, t, -0.867383957f);
  p = __builtin_elementwise_fma(p, t, 0.706656635f);
  const f32 tail = __builtin_elementwise_fma(e, -0.5f * low, e) * (inverse * p);
  return x > 0.0f ? 1.0f - tail : tail;
}
)");
  // One instruction each, from sm_80 on: rounds to nearest even, keeps NaN. The instruction for pairs has
  // several times the throughput of the one for single values.
  add("to.f16", {}, R"(#ifdef STRIDEC_EMULATE
static inline u16 sd_to_f16(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }
#else
static inline u16 sd_to_f16(f32 x) { unsigned h; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(0.0f), "f"(x)); return (u16)h; }
#endif
)");
  add("from.f16", {}, R"(#ifdef STRIDEC_EMULATE
static inline f32 sd_from_f16(u16 h) { return (f32)__builtin_bit_cast(_Float16, h); }
#else
static inline f32 sd_from_f16(u16 h) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
#endif
)");
  add("to.bf16", {}, R"(#ifdef STRIDEC_EMULATE
static inline u16 sd_to_bf16(f32 x) {
  const u32 b = __builtin_bit_cast(u32, x);
  return (u16)(x != x ? 0x7fc0u : (b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
#else
static inline u16 sd_to_bf16(f32 x) { unsigned h; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(0.0f), "f"(x)); return (u16)h; }
#endif
)");
  for (const char* type : {"f16", "bf16"})
    for (const auto& [op, sign] : {std::pair("add", "+"), {"sub", "-"}, {"mul", "*"}})
      add(cat(op, ".", type), {cat("to.", type), cat("from.", type)},
          cat("#if ", type[0] == 'b' ? "__CUDA_ARCH__ >= 900" : "__CUDA_ARCH__",
              " && !defined STRIDEC_EMULATE\n", "static inline u16 sd_", op, "_", type,
              "(u16 a, u16 b) { u16 r; asm(\"", op, ".rn.", type,
              " %0, %1, %2;\" : \"=h\"(r) : \"h\"(a), \"h\"(b)); return r; }\n#else\nstatic inline u16 sd_",
              op, "_", type, "(u16 a, u16 b) { return sd_to_", type, "(sd_from_", type, "(a) ", sign,
              " sd_from_", type, "(b)); }\n#endif\n"));
  // For results that are rounded to 11 bits or fewer: within 2^-17; NaNs and infinities as usual.
  add("quotient.f32", {}, R"(#ifdef STRIDEC_EMULATE
static inline f32 sd_quotient(f32 a, f32 b) { return a / b; }
#else
static inline f32 sd_quotient(f32 a, f32 b) { f32 q; asm("div.full.f32 %0, %1, %2;" : "=f"(q) : "f"(a), "f"(b)); return q; }
#endif
)");
  add("exp_coarse.f32", {}, R"(#ifdef STRIDEC_EMULATE
static inline f32 sd_exp_coarse(f32 x) { return expf(x); }
#else
static inline f32 sd_exp_coarse(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f)); return y; }
#endif
)");
  add("sigmoid_coarse.f32", {"exp_coarse.f32", "quotient.f32"},
      "static inline f32 sd_sigmoid_coarse(f32 x) { return sd_quotient(1.0f, 1.0f + sd_exp_coarse(-x)); }\n");
  // erfc(-x), as 2 to the power of p(|x|), or 2 minus that. p is log2(erfc) up to 8.5, within 2^-16; beyond
  // that, where erfc is below 2^-108, it keeps falling.
  add("one_erf_coarse.f32", {}, R"(static inline f32 sd_one_erf_coarse(f32 x) {
  const f32 a = __builtin_elementwise_abs(x);
  f32 p = -0x1.e6b032p-25f;
  p = __builtin_elementwise_fma(p, a, 0x1.708826p-19f);
  p = __builtin_elementwise_fma(p, a, -0x1.edf0dcp-15f);
  p = __builtin_elementwise_fma(p, a, 0x1.84614cp-11f);
  p = __builtin_elementwise_fma(p, a, -0x1.91e498p-8f);
  p = __builtin_elementwise_fma(p, a, 0x1.2498c8p-5f);
  p = __builtin_elementwise_fma(p, a, -0x1.3c205ap-3f);
  p = __builtin_elementwise_fma(p, a, -0x1.d50b4ap-1f);
  p = __builtin_elementwise_fma(p, a, -0x1.a0d440p+0f);
  p = __builtin_elementwise_fma(p, a, 0x1.8fb79ap-19f);
#ifdef STRIDEC_EMULATE
  const f32 e = exp2f(p);
#else
  f32 e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(p));
#endif
  return x < 0.0f ? e : 2.0f - e;
}
)");
  add("one_tanh_coarse.f32", {"sigmoid_coarse.f32"},
      "static inline f32 sd_one_tanh_coarse(f32 x) { return 2.0f * sd_sigmoid_coarse(2.0f * x); }\n");
  // x * p(x^2), fitted to the relative error up to 2.8, where erf is 1 to 12 bits.
  add("erf_coarse.f32", {"min.f32", "max.f32"}, R"(static inline f32 sd_erf_coarse(f32 x) {
  x = sd_fmin(sd_fmax(x, -2.8f), 2.8f);
  const f32 t = x * x;
  f32 p = -0x1.b1cb66p-28f;
  p = __builtin_elementwise_fma(p, t, 0x1.3d588cp-22f);
  p = __builtin_elementwise_fma(p, t, -0x1.a5c0fap-18f);
  p = __builtin_elementwise_fma(p, t, 0x1.560cd0p-14f);
  p = __builtin_elementwise_fma(p, t, -0x1.81c8d4p-11f);
  p = __builtin_elementwise_fma(p, t, 0x1.470986p-8f);
  p = __builtin_elementwise_fma(p, t, -0x1.b3acbap-6f);
  p = __builtin_elementwise_fma(p, t, 0x1.cd7d34p-4f);
  p = __builtin_elementwise_fma(p, t, -0x1.811c3ap-2f);
  return __builtin_elementwise_fma(p, t, 0x1.20dd56p+0f) * x;
}
)");
  // Clamps first: what rounds to the largest finite value is unchanged, infinities become that value, NaN
  // stays.
  add("to_sat.f16", {"to.f16", "min.f32", "max.f32"},
      "static inline u16 sd_to_sat_f16(f32 x) { return sd_to_f16(sd_fmin(sd_fmax(x, -65504.0f), 65504.0f)); "
      "}\n");
  add("to_sat.bf16", {"to.bf16", "min.f32", "max.f32"},
      "static inline u16 sd_to_sat_bf16(f32 x) { return sd_to_bf16(sd_fmin(sd_fmax(x, -0x1.fep127f), "
      "0x1.fep127f)); }\n");
  // Not contracted with an addition.
  add("product.f32", {}, R"(#ifdef STRIDEC_EMULATE
#pragma clang fp contract(off)
static inline f32 sd_product(f32 a, f32 b) { return a * b; }
#else
static inline f32 sd_product(f32 a, f32 b) { return __fmul_rn(a, b); }
#endif
)");
  add("product.f64", {}, R"(#ifdef STRIDEC_EMULATE
#pragma clang fp contract(off)
static inline f64 sd_product(f64 a, f64 b) { return a * b; }
#else
static inline f64 sd_product(f64 a, f64 b) { return __dmul_rn(a, b); }
#endif
)");
  for (const char* which : {"min", "max"})
    add(cat(which, ".f32"), {},
        cat("#ifdef STRIDEC_EMULATE\nstatic inline f32 sd_f", which,
            "(f32 a, f32 b) { return a != a ? a : a ", which[1] == 'i' ? "<" : ">",
            " b ? a : b; }\n#else\nstatic inline f32 sd_f", which, "(f32 a, f32 b) { f32 r; asm(\"", which,
            ".NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); "
            "return r; }\n#endif\n"));
  add("from.bf16", {},
      "static inline f32 sd_from_bf16(u16 h) { return __builtin_bit_cast(f32, (u32)h << 16); }\n");
  return out;
}

const Snippet* find(std::string_view name) {
  static const std::map<std::string, Snippet, std::less<>> snippets = make_snippets();
  const auto found = snippets.find(name);
  return found == snippets.end() ? nullptr : &found->second;
}

}  // namespace

std::string_view prelude() { return kPrelude; }

const CudaText kCudaText{find};

}  // namespace stridec::codegen::cuda
