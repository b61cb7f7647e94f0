#include "cpu_features.h"

#include "stridec/abi.h"
#include "text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stridec::runtime {
namespace {

// Registers of CPUID leaves; kFeatures refers to them.
enum Word { k1Ecx, k7Ebx, k7Ecx, k7Edx, k71Eax, kExtEcx, kWords };
// Register state; XCR0 must show that the system saves it.
enum State { kNone, kYmm, kZmm, kTile };

struct Feature {
  uint64_t bit;
  Word word;
  int position;
  State state;
  const char* name;
};

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
constexpr Feature kFeatures[] = {
    {STRIDEC_CPU_SSE3, k1Ecx, 0, kNone, "sse3"},
    {STRIDEC_CPU_SSSE3, k1Ecx, 9, kNone, "ssse3"},
    {STRIDEC_CPU_SSE41, k1Ecx, 19, kNone, "sse4.1"},
    {STRIDEC_CPU_SSE42, k1Ecx, 20, kNone, "sse4.2"},
    {STRIDEC_CPU_POPCNT, k1Ecx, 23, kNone, "popcnt"},
    {STRIDEC_CPU_CX16, k1Ecx, 13, kNone, "cx16"},
    {STRIDEC_CPU_LAHF, kExtEcx, 0, kNone, "lahf"},
    {STRIDEC_CPU_AVX, k1Ecx, 28, kYmm, "avx"},
    {STRIDEC_CPU_AVX2, k7Ebx, 5, kYmm, "avx2"},
    {STRIDEC_CPU_BMI1, k7Ebx, 3, kNone, "bmi1"},
    {STRIDEC_CPU_BMI2, k7Ebx, 8, kNone, "bmi2"},
    {STRIDEC_CPU_F16C, k1Ecx, 29, kYmm, "f16c"},
    {STRIDEC_CPU_FMA, k1Ecx, 12, kYmm, "fma"},
    {STRIDEC_CPU_LZCNT, kExtEcx, 5, kNone, "lzcnt"},
    {STRIDEC_CPU_MOVBE, k1Ecx, 22, kNone, "movbe"},
    {STRIDEC_CPU_ADX, k7Ebx, 19, kNone, "adx"},
    {STRIDEC_CPU_AES, k1Ecx, 25, kNone, "aes"},
    {STRIDEC_CPU_PCLMUL, k1Ecx, 1, kNone, "pclmul"},
    {STRIDEC_CPU_SHA, k7Ebx, 29, kNone, "sha"},
    {STRIDEC_CPU_SSE4A, kExtEcx, 6, kNone, "sse4a"},
    {STRIDEC_CPU_PRFCHW, kExtEcx, 8, kNone, "prfchw"},
    {STRIDEC_CPU_RDRND, k1Ecx, 30, kNone, "rdrnd"},
    {STRIDEC_CPU_RDSEED, k7Ebx, 18, kNone, "rdseed"},
    {STRIDEC_CPU_GFNI, k7Ecx, 8, kNone, "gfni"},
    {STRIDEC_CPU_VAES, k7Ecx, 9, kYmm, "vaes"},
    {STRIDEC_CPU_VPCLMULQDQ, k7Ecx, 10, kYmm, "vpclmulqdq"},
    {STRIDEC_CPU_AVX512F, k7Ebx, 16, kZmm, "avx512f"},
    {STRIDEC_CPU_AVX512BW, k7Ebx, 30, kZmm, "avx512bw"},
    {STRIDEC_CPU_AVX512CD, k7Ebx, 28, kZmm, "avx512cd"},
    {STRIDEC_CPU_AVX512DQ, k7Ebx, 17, kZmm, "avx512dq"},
    {STRIDEC_CPU_AVX512VL, k7Ebx, 31, kZmm, "avx512vl"},
    {STRIDEC_CPU_AVX512IFMA, k7Ebx, 21, kZmm, "avx512ifma"},
    {STRIDEC_CPU_AVX512VBMI, k7Ecx, 1, kZmm, "avx512vbmi"},
    {STRIDEC_CPU_AVX512VBMI2, k7Ecx, 6, kZmm, "avx512vbmi2"},
    {STRIDEC_CPU_AVX512VNNI, k7Ecx, 11, kZmm, "avx512vnni"},
    {STRIDEC_CPU_AVX512BITALG, k7Ecx, 12, kZmm, "avx512bitalg"},
    {STRIDEC_CPU_AVX512VPOPCNTDQ, k7Ecx, 14, kZmm, "avx512vpopcntdq"},
    {STRIDEC_CPU_AVX512BF16, k71Eax, 5, kZmm, "avx512bf16"},
    {STRIDEC_CPU_AVX512FP16, k7Edx, 23, kZmm, "avx512fp16"},
    {STRIDEC_CPU_AVX512VP2INTERSECT, k7Edx, 8, kZmm, "avx512vp2intersect"},
    {STRIDEC_CPU_AVXVNNI, k71Eax, 4, kYmm, "avxvnni"},
    {STRIDEC_CPU_AMX_TILE, k7Edx, 24, kTile, "amx-tile"},
    {STRIDEC_CPU_AMX_INT8, k7Edx, 25, kTile, "amx-int8"},
    {STRIDEC_CPU_AMX_BF16, k7Edx, 22, kTile, "amx-bf16"},
    {STRIDEC_CPU_MOVDIRI, k7Ecx, 27, kNone, "movdiri"},
    {STRIDEC_CPU_MOVDIR64B, k7Ecx, 28, kNone, "movdir64b"},
};

}  // namespace

uint64_t cpu_features([[maybe_unused]] bool want_amx) {
  uint64_t found = 0;
#if defined(__x86_64__)
  uint32_t word[kWords] = {};
  uint32_t unused;
  if (!__get_cpuid(1, &unused, &unused, &word[k1Ecx], &unused)) return 0;
  uint32_t subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &word[k7Ebx], &word[k7Ecx], &word[k7Edx]) && subleaves >= 1)
    __get_cpuid_count(7, 1, &word[k71Eax], &unused, &unused, &unused);
  __get_cpuid(0x80000001u, &unused, &unused, &word[kExtEcx], &unused);

  uint32_t xcr0 = 0;
  if (word[k1Ecx] & bit_OSXSAVE) __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(unused) : "c"(0));
  bool saved[4] = {true, (xcr0 & 0x6) == 0x6, (xcr0 & 0xe6) == 0xe6, (xcr0 & 0x60000) == 0x60000};
  // Linux requires a request before a process may use tile registers: arch_prctl(ARCH_REQ_XCOMP_PERM,
  // XTILEDATA).
  if (saved[kTile]) saved[kTile] = want_amx && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  for (const Feature& f : kFeatures)
    if (((word[f.word] >> f.position) & 1) && saved[f.state]) found |= f.bit;
#endif
  return found;
}

void list_features(Text& text, uint64_t features) {
  const char* separator = "";
  for (const Feature& f : kFeatures) {
    if (!(features & f.bit)) continue;
    text << separator << f.name;
    separator = ", ";
    features &= ~f.bit;
  }
  if (features) text << separator << "a feature that this runtime does not know";
}

}  // namespace stridec::runtime
