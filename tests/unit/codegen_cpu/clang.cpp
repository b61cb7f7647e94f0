#include "compiler/codegen/cpu/clang.h"

#include <doctest/doctest.h>

#include <set>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/base/target.h"
#include "compiler/codegen/embedded.h"
#include "runtime/include/stridec/abi.h"

using namespace stridec;
using namespace stridec::codegen;

namespace {

constexpr const char* kDot = R"(
typedef float vf __attribute__((ext_vector_type(8)));
extern "C" float dot(const float* __restrict a, const float* __restrict b, long n) {
  vf s = 0.0f;
  for (long i = 0; i + 8 <= n; i += 8) s += *(const vf*)(a + i) * *(const vf*)(b + i);
  return __builtin_reduce_add(__builtin_convertvector(s, __attribute__((ext_vector_type(8))) int));
}
)";

Error error_of(std::string_view source) {
  try {
    compile_to_object("kernel 'k'", source, {});
  } catch (const Error& e) {
    return e;
  }
  FAIL("compiled");
  throw;
}

std::string notes(const Error& e) {
  std::string out;
  for (const std::string& n : e.diagnostic.notes) out += n + "\n";
  return out;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("source becomes a relocatable object, the same one every time and on every thread") {
  CompileTimes times;
  const std::string first = compile_to_object("dot", kDot, {}, &times);
  CHECK(first.substr(0, 4) ==
        "\x7f"
        "ELF");
  CHECK(times.frontend > 0);
  CHECK(times.emit > 0);
  std::vector<std::string> results(6);
  std::vector<std::thread> threads;
  for (std::string& r : results) threads.emplace_back([&r] { r = compile_to_object("dot", kDot, {}); });
  for (std::thread& t : threads) t.join();
  for (const std::string& r : results) CHECK(r == first);
}

TEST_CASE("objects have one key if their sources and all options are equal") {
  const CompileOptions given;
  const std::string source = "int f() { return 1; }";
  std::set<std::string> keys = {object_key(source, given), object_key(source + " ", given)};
  const auto with = [&](auto change) {
    CompileOptions other = given;
    change(other);
    keys.insert(object_key(source, other));
  };
  with([](CompileOptions& o) { o.cpu = "x86-64-v4"; });
  with([](CompileOptions& o) { o.tune = "znver4"; });
  with([](CompileOptions& o) { o.optimize = 0; });
  with([](CompileOptions& o) { o.fuse_multiply_add = false; });
  with([](CompileOptions& o) { o.tell_accesses = true; });
  CHECK(keys.size() == 7);
  CHECK(keys.contains(object_key(source, given)));
}

TEST_CASE("assembly uses the named CPU's registers, 512 bits wide where the source says so") {
  const char* source = R"(typedef float vf __attribute__((ext_vector_type(16)));
extern "C" void axpy(vf* y, const vf* x, float a) { *y += *x * a; })";
  CHECK(contains(compile_to_assembly("axpy", source, {.cpu = "x86-64-v3"}), "vfmadd"));
  for (const char* cpu : {"x86-64-v4", "skylake-avx512", "znver4"})
    CHECK(contains(compile_to_assembly("axpy", source, {.cpu = cpu, .tune = cpu_target(cpu).tune}), "zmm"));
  CHECK(!contains(compile_to_assembly("axpy", source, {.cpu = "x86-64-v2"}), "vmulps"));
}

TEST_CASE("contraction follows the option, and a pragma in the source overrides it") {
  const char* plain = R"(extern "C" float f(float a, float b, float c) { return a * b + c; })";
  const char* off = R"(extern "C" float f(float a, float b, float c) {
#pragma clang fp contract(off)
  return a * b + c; })";
  CHECK(contains(compile_to_assembly("f", plain, {}), "vfmadd"));
  CHECK(!contains(compile_to_assembly("f", plain, {.fuse_multiply_add = false}), "vfmadd"));
  CHECK(!contains(compile_to_assembly("f", off, {}), "vfmadd"));
}

TEST_CASE("sums keep their order unless the source frees it") {
  const char* sum = R"(extern "C" float sum(const float* x) {
  float s = 0;
  for (int i = 0; i < 1024; ++i) s += x[i];
  return s; })";
  const char* freed = R"(extern "C" float sum(const float* x) {
#pragma clang fp reassociate(on)
  float s = 0;
  for (int i = 0; i < 1024; ++i) s += x[i];
  return s; })";
  CHECK(!contains(compile_to_assembly("sum", sum, {}), "vaddps"));
  CHECK(contains(compile_to_assembly("sum", freed, {}), "vaddps"));
}

TEST_CASE("an error in the source is reported with its line") {
  const Error e = error_of("int f() {\n  return x;\n}\n");
  CHECK(e.diagnostic.kind == ErrorKind::kToolchain);
  CHECK(e.diagnostic.message == "the code generated for 'kernel 'k'' does not compile for x86-64-v3");
  CHECK(contains(notes(e), ":2:10: error: use of undeclared identifier 'x'"));
}

TEST_CASE("a failure or crash of the back end is an error like any other") {
  CHECK(contains(notes(error_of("int f() { asm(\"bogus %rax\"); return 1; }")),
                 "invalid instruction mnemonic"));
  CHECK(
      contains(error_of("#pragma clang __debug parser_crash\n").diagnostic.message, "crashes the compiler"));
  CHECK(contains(error_of("#pragma clang __debug llvm_fatal_error\n").diagnostic.message,
                 "crashes the compiler"));
  CHECK_NOTHROW(compile_to_object("dot", kDot, {}));
}

TEST_CASE("a source sees no file of this machine") {
  CHECK(contains(notes(error_of("#include <stdint.h>\n")), "'stdint.h' file not found"));
  CHECK(contains(notes(error_of("#include \"/etc/passwd\"\n")), "file not found"));
}

TEST_CASE("the ABI header compiles without headers") {
  const std::string source =
      "#define STRIDEC_ABI_FREESTANDING 1\n" + std::string(abi_header()) +
      "\nextern \"C\" void k(const stridec_abi_args* a, int64_t b, int64_t e, int32_t part) {\n"
      "  if (b < e) stridec_abi_fail(a, part, 0, b, e, 0, 0);\n}\n";
  CHECK_NOTHROW(compile_to_object("k", source, {}));
}

// The runtime checks a machine by the ABI's feature bits. A feature that LLVM may use but the bits omit leads
// to SIGILL.
TEST_CASE("the feature bits of each CPU cover what LLVM takes for granted on it") {
  static constexpr struct {
    const char* name;
    uint64_t bit;
  } kBits[] = {{"sse3", STRIDEC_CPU_SSE3},
               {"ssse3", STRIDEC_CPU_SSSE3},
               {"sse4.1", STRIDEC_CPU_SSE41},
               {"sse4.2", STRIDEC_CPU_SSE42},
               {"popcnt", STRIDEC_CPU_POPCNT},
               {"cx16", STRIDEC_CPU_CX16},
               {"sahf", STRIDEC_CPU_LAHF},
               {"avx", STRIDEC_CPU_AVX},
               {"avx2", STRIDEC_CPU_AVX2},
               {"bmi", STRIDEC_CPU_BMI1},
               {"bmi2", STRIDEC_CPU_BMI2},
               {"f16c", STRIDEC_CPU_F16C},
               {"fma", STRIDEC_CPU_FMA},
               {"lzcnt", STRIDEC_CPU_LZCNT},
               {"movbe", STRIDEC_CPU_MOVBE},
               {"sse4a", STRIDEC_CPU_SSE4A},
               {"gfni", STRIDEC_CPU_GFNI},
               {"avx512f", STRIDEC_CPU_AVX512F},
               {"avx512bw", STRIDEC_CPU_AVX512BW},
               {"avx512cd", STRIDEC_CPU_AVX512CD},
               {"avx512dq", STRIDEC_CPU_AVX512DQ},
               {"avx512vl", STRIDEC_CPU_AVX512VL},
               {"avx512ifma", STRIDEC_CPU_AVX512IFMA},
               {"avx512vbmi", STRIDEC_CPU_AVX512VBMI},
               {"avx512vbmi2", STRIDEC_CPU_AVX512VBMI2},
               {"avx512vnni", STRIDEC_CPU_AVX512VNNI},
               {"avx512bitalg", STRIDEC_CPU_AVX512BITALG},
               {"avx512vpopcntdq", STRIDEC_CPU_AVX512VPOPCNTDQ},
               {"avx512bf16", STRIDEC_CPU_AVX512BF16},
               {"avx512fp16", STRIDEC_CPU_AVX512FP16},
               {"avxvnni", STRIDEC_CPU_AVXVNNI},
               {"amx-tile", STRIDEC_CPU_AMX_TILE},
               {"amx-int8", STRIDEC_CPU_AMX_INT8},
               {"amx-bf16", STRIDEC_CPU_AMX_BF16}};
  // Part of every x86-64, or never selected by the compiler itself: cryptography, carry chains, cache
  // control.
  static const std::set<std::string> kFree = {
      "64bit",    "adx",        "aes",      "sha",      "vaes",    "vpclmulqdq", "avx512vp2intersect",
      "cldemote", "clflushopt", "clwb",     "clzero",   "cmov",    "crc32",      "cx8",
      "enqcmd",   "evex512",    "fsgsbase", "fxsr",     "invpcid", "mmx",        "movdir64b",
      "movdiri",  "mwaitx",     "pclmul",   "pconfig",  "prfchw",  "pku",        "prefetchi",
      "ptwrite",  "rdpid",      "rdpru",    "rdrnd",    "rdseed",  "serialize",  "sgx",
      "shstk",    "sse",        "sse2",     "tsxldtrk", "uintr",   "waitpkg",    "wbnoinvd",
      "x87",      "xsave",      "xsavec",   "xsaveopt", "xsaves"};
  static constexpr struct {
    const char* cpu;
    uint64_t bits;
  } kCpus[] = {{"x86-64", 0},
               {"x86-64-v2", STRIDEC_CPU_X86_64_V2},
               {"x86-64-v3", STRIDEC_CPU_X86_64_V3},
               {"x86-64-v4", STRIDEC_CPU_X86_64_V4},
               {"haswell", STRIDEC_CPU_HASWELL},
               {"znver3", STRIDEC_CPU_ZNVER3},
               {"skylake-avx512", STRIDEC_CPU_SKYLAKE_AVX512},
               {"cascadelake", STRIDEC_CPU_CASCADELAKE},
               {"icelake-server", STRIDEC_CPU_ICELAKE_SERVER},
               {"sapphirerapids", STRIDEC_CPU_SAPPHIRERAPIDS},
               {"znver4", STRIDEC_CPU_ZNVER4},
               {"znver5", STRIDEC_CPU_ZNVER5}};
  std::set<std::string> tested;
  for (const auto& [cpu, bits] : kCpus) {
    tested.insert(cpu);
    for (const std::string& feature : cpu_features(cpu)) {
      if (kFree.count(feature)) continue;
      uint64_t needed = 0;
      for (const auto& row : kBits)
        if (feature == row.name) needed = row.bit;
      INFO(std::string(cpu) << " has " << feature);
      CHECK(needed != 0);
      CHECK((bits & needed) == needed);
    }
  }
  for (const CpuTarget& target : cpu_targets()) CHECK_MESSAGE(tested.count(target.name), target.name);
}
