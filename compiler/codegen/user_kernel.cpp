#include "compiler/codegen/user_kernel.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/codegen/emit_snippets.h"

namespace stridec::codegen {
namespace {

using loop::UserArguments;
using loop::UserKernel;
using Parameter = UserKernel::Parameter;

constexpr std::string_view kPrelude = R"(
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t, size_t, uintptr_t;
typedef long ptrdiff_t, intptr_t;
typedef _Float16 half;
typedef __bf16 bfloat16;
void* memcpy(void* restrict, const void* restrict, size_t);
void* memmove(void*, const void*, size_t);
void* memset(void*, int, size_t);
int memcmp(const void*, const void*, size_t);
#define NULL ((void*)0)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-INT32_MAX - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-INT64_MAX - 1)
#define INT64_MAX 9223372036854775807l
#define UINT64_MAX 18446744073709551615ul
#define SIZE_MAX UINT64_MAX
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1p-1022
#define DBL_EPSILON 0x1p-52
#define M_PI 3.14159265358979323846
#define M_E 2.7182818284590452354
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_LN2 0.69314718055994530942
#define M_2_SQRTPI 1.12837916709551257390
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
)";

// Functions of math.h, for the type F. Artifacts do not link libm.
struct Function {
  std::string_view name;
  std::vector<std::string_view> needs;  // snippets, without the type
  std::string_view result;              // of a, b and c
  int arity = 1;
};
const std::vector<Function>& functions() {
  static const std::vector<Function> list = {
      {"exp", {"exp"}, "sd_exp(a)"},
      {"exp2", {"pow"}, "sd_pow((F)2, a)"},
      {"expm1", {"expm1"}, "sd_expm1(a)"},
      {"log", {"log"}, "sd_log(a)"},
      {"log1p", {"log1p"}, "sd_log1p(a)"},
      {"log2", {"log"}, "sd_log(a) * (F)1.44269504088896340736"},
      {"log10", {"log"}, "sd_log(a) * (F)0.43429448190325182765"},
      {"sqrt", {}, "__builtin_elementwise_sqrt(a)"},
      {"rsqrt", {}, "1 / __builtin_elementwise_sqrt(a)"},
      {"pow", {"pow"}, "sd_pow(a, b)", 2},
      {"sin", {"sin"}, "sd_sin(a)"},
      {"cos", {"cos"}, "sd_cos(a)"},
      {"tan", {"tan"}, "sd_tan(a)"},
      {"asin", {"asin"}, "sd_asin(a)"},
      {"acos", {"acos"}, "sd_acos(a)"},
      {"atan", {"atan"}, "sd_atan(a)"},
      {"atan2", {"atan2"}, "sd_atan2(a, b)", 2},
      {"sinh", {"sinh"}, "sd_sinh(a)"},
      {"cosh", {"cosh"}, "sd_cosh(a)"},
      {"tanh", {"tanh"}, "sd_tanh(a)"},
      {"asinh", {"asinh"}, "sd_asinh(a)"},
      {"acosh", {"acosh"}, "sd_acosh(a)"},
      {"atanh", {"atanh"}, "sd_atanh(a)"},
      {"erf", {"erf"}, "sd_erf(a)"},
      {"floor", {}, "__builtin_elementwise_floor(a)"},
      {"ceil", {}, "__builtin_elementwise_ceil(a)"},
      {"trunc", {}, "__builtin_elementwise_trunc(a)"},
      {"rint", {}, "__builtin_elementwise_rint(a)"},
      {"nearbyint", {}, "__builtin_elementwise_nearbyint(a)"},
      // Ties away from zero: only from one half on is there something to add.
      {"round",
       {},
       "__builtin_elementwise_copysign(__builtin_elementwise_trunc(__builtin_elementwise_abs(a)) + "
       "(__builtin_elementwise_abs(a) - __builtin_elementwise_trunc(__builtin_elementwise_abs(a)) >= "
       "(F)0.5), a)"},
      {"fabs", {}, "__builtin_elementwise_abs(a)"},
      {"copysign", {}, "__builtin_elementwise_copysign(a, b)", 2},
      {"fmod", {"rem"}, "sd_frem(a, b)", 2},
      {"fmin", {}, "a != a ? b : b != b ? a : a < b ? a : b", 2},
      {"fmax", {}, "a != a ? b : b != b ? a : a > b ? a : b", 2},
      {"fma", {"fma"}, "sd_fma(a, b, c)", 3},
  };
  return list;
}

// The identifiers in a text. Only the helpers that it names are defined.
std::set<std::string, std::less<>> words_of(const std::string& text) {
  std::set<std::string, std::less<>> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::move(word));
      word.clear();
    }
  }
  return words;
}

class Snippets {
 public:
  explicit Snippets(bool f16c) : f16c_(f16c) {}

  void use(std::string name) {
    if (name.ends_with("!1")) name.resize(name.size() - 2);
    if (!used_.insert(name).second) return;
    const Snippet& found = find_snippet(name, 1, f16c_);
    for (const std::string& need : found.needs) use(need);
    for (const char c : found.text) {
      if (c == '`')
        text_ += '1';
      else if (c != '@')
        text_ += c;
    }
  }
  const std::string& text() const { return text_; }

 private:
  bool f16c_;
  std::set<std::string> used_;
  std::string text_;
};

// Conversions that clang calls where the processor has no instruction.
constexpr std::string_view kConversions = R"(
#define STRIDEC_CALLED __attribute__((weak, used, visibility("hidden")))
STRIDEC_CALLED float __extendhfsf2(_Float16 x) { return sd_from_f16(__builtin_bit_cast(u16, x)); }
STRIDEC_CALLED _Float16 __truncsfhf2(float x) { return __builtin_bit_cast(_Float16, (u16)sd_to_f16(x)); }
STRIDEC_CALLED _Float16 __truncdfhf2(double x) { return __builtin_bit_cast(_Float16, (u16)sd_to_f16(sd_odd(x))); }
STRIDEC_CALLED __bf16 __truncsfbf2(float x) { return __builtin_bit_cast(__bf16, (u16)sd_to_bf16(x)); }
STRIDEC_CALLED __bf16 __truncdfbf2(double x) { return __builtin_bit_cast(__bf16, (u16)sd_to_bf16(sd_odd(x))); }
)";

// Definitions of the helpers that the user's text names, made from snippets. Snippets are C++; in C,
// attributes and macros stand in for overloading and __builtin_bit_cast.
std::string helpers(const UserKernel& kernel, const std::string& source, bool f16c) {
  const auto words = words_of(source);
  Snippets snippets(f16c);
  std::string own;
  for (const Function& f : functions())
    for (const bool single : {true, false}) {
      if (!words.contains(cat(f.name, single ? "f" : ""))) continue;
      const std::string type = single ? "f32" : "f64";
      for (const std::string_view need : f.needs) snippets.use(cat(need, ".", type));
      const std::string_view parameters[] = {"F a", "F a, F b", "F a, F b, F c"};
      std::string text = cat("static inline F ", f.name, single ? "f" : "", "(", parameters[f.arity - 1],
                             ") { return ", f.result, "; }\n");
      own += replaced(replaced(std::move(text), "F ", type + " "), "(F)", "(" + type + ")");
    }
  std::vector<DType> types;
  for (size_t t = 0; t < kernel.tensor_count(); ++t) types.push_back(kernel.tensor(t).dtype);
  for (const auto& [name, dtype] : kernel.types) types.push_back(dtype);
  const auto has = [&](std::initializer_list<DType> some) {
    return std::ranges::any_of(types, [&](DType t) { return std::ranges::count(some, t) > 0; });
  };
  const bool halves = has({DType::kF16, DType::kBF16}) || words.contains("half") ||
                      words.contains("bfloat16") || words.contains("_Float16") || words.contains("__bf16");
  if (halves)
    for (const char* need : {"from.f16", "to.f16", "to.bf16", "odd"}) snippets.use(need);
  // Types of fewer bits are bytes, with functions that convert them.
  for (const DType dtype : {DType::kF4E2M1, DType::kF6E2M3, DType::kF6E3M2, DType::kF8E4M3,
                            DType::kF8E4M3Fnuz, DType::kF8E5M2, DType::kF8E5M2Fnuz, DType::kF8E8M0}) {
    const std::string type(name(dtype));
    if (words.contains(type + "_to_float")) {
      snippets.use("from." + type);
      own += cat("static inline float ", type, "_to_float(uint8_t x) { return sd_from_", type, "(x); }\n");
    }
    if (words.contains("float_to_" + type)) {
      snippets.use("to." + type);
      own += cat("static inline uint8_t float_to_", type, "(float x) { return sd_to_", type, "(x); }\n");
    }
  }
  std::string out =
      "typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;\n"
      "typedef unsigned u32; typedef int i32; typedef unsigned long u64; typedef long i64;\n"
      "typedef float f32; typedef double f64;\n"
      "#define __builtin_bit_cast(T, ...) ({ const __typeof__(__VA_ARGS__) sd_from = (__VA_ARGS__); T sd_to; "
      "__builtin_memcpy(&sd_to, &sd_from, sizeof sd_to); sd_to; })\n"
      "#pragma clang diagnostic push\n"
      "#define inline inline __attribute__((overloadable))\n";
  out += snippets.text();
  out += "#undef inline\n#pragma clang diagnostic pop\n";
  if (halves) out += kConversions;
  return out + own;
}

// The text of a parameter in the call of the user's function.
std::string argument(const UserKernel& kernel, const Parameter& p) {
  using Kind = Parameter::Kind;
  const UserArguments at(kernel);
  switch (p.kind) {
    case Kind::kData: {
      const std::string type = user_element_type(kernel.tensor(p.index).dtype, false);
      return cat("(", p.index < kernel.reads.size() ? "const " : "", type, "*)data[", p.index, "]");
    }
    case Kind::kDims: return cat("sizes + ", at.dim(p.index, 0));
    case Kind::kStrides: return cat("sizes + ", at.stride(p.index, 0));
    case Kind::kRank: return cat("(int64_t)", kernel.tensor(p.index).rank);
    case Kind::kSize: return cat("sizes[", at.size(p.index), "]");
    case Kind::kReal: return cat("__builtin_bit_cast(double, sizes[", at.size(p.index), "])");
    case Kind::kCount: return cat("(int64_t)", p.index);
    case Kind::kNumbers:
      return cat("(const ", p.real ? "double" : "int64_t", "[]){", p.text.empty() ? "0" : p.text, "}");
    case Kind::kBegin: return "begin";
    case Kind::kEnd: return "end";
    case Kind::kScratch: return "(void*)scratch";
  }
  return "";
}

// The types of stdint.h that the CUDA prelude lacks, and 16-bit floats as types that convert to float.
constexpr std::string_view kCudaTypes = R"(
typedef signed char int8_t;
typedef short int16_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
struct half {
  u16 bits;
  half() = default;
  half(float x) : bits(sd_to_f16(x)) {}
  operator float() const { return sd_from_f16(bits); }
};
struct bfloat16 {
  u16 bits;
  bfloat16() = default;
  bfloat16(float x) : bits(sd_to_bf16(x)) {}
  operator float() const { return sd_from_bf16(bits); }
};
)";

// Turns the user's __global__ functions into device functions: a generated kernel calls them, and has the
// launch bounds.
std::string as_device_text(const std::string& source) {
  std::string out = replaced(source, "__global__", "static");
  constexpr std::string_view kBounds = "__launch_bounds__";
  for (size_t at = out.find(kBounds); at != std::string::npos; at = out.find(kBounds, at)) {
    size_t end = at + kBounds.size();
    int depth = 0;
    while (end < out.size() &&
           (out[end] == '(' || depth > 0 || std::isspace(static_cast<unsigned char>(out[end])))) {
      if (out[end] == '(') ++depth;
      if (out[end] == ')' && --depth == 0) {
        ++end;
        break;
      }
      ++end;
    }
    // Lines stay where they are.
    const auto lines = static_cast<size_t>(std::count(out.begin() + static_cast<std::ptrdiff_t>(at),
                                                      out.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    out.replace(at, end - at, std::string(lines, '\n'));
  }
  return out;
}

// A quoted file name of a #line.
std::string quoted(const std::string& place) {
  std::string out;
  for (const char c : place)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32)
      out += '?';
    else
      out += c;
  return cat("\"", out, "\"");
}

}  // namespace

std::string user_element_type(DType dtype, bool cuda) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kF16: return cuda ? "half" : "_Float16";
    case DType::kBF16: return cuda ? "bfloat16" : "__bf16";
    case DType::kF32:
    case DType::kTF32: return "float";
    case DType::kF64: return "double";
    default: break;
  }
  if (is_float(dtype)) return "uint8_t";
  return cat(is_signed(dtype) ? "int" : "uint", 8 * byte_size(dtype), "_t");
}

std::string user_kernel_c(const UserKernel& kernel, const std::string& symbol, bool f16c) {
  const UserKernel::Text& text = *kernel.c;
  std::string out(kPrelude.substr(1));
  out += helpers(kernel, text.source, f16c);
  for (const auto& [name, dtype] : kernel.types)
    out += cat("typedef ", user_element_type(dtype, false), " ", name, ";\n");
  // Names of one text are not those of another: an artifact may have several.
  out +=
      "#pragma clang diagnostic ignored \"-Wundefined-internal\"\n"
      "#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = any(function, "
      "variable(is_global)))\n";
  out += cat("#line 1 ", quoted(text.place), "\n", text.source, "\n#pragma clang attribute pop\n");
  out += cat("#line 1 ", quoted(cat(text.place, " (the call of ", text.function, ")")), "\n");
  out += cat("__attribute__((visibility(\"hidden\"))) int ", symbol,
             "(void* const* data, const int64_t* sizes, char* scratch, int64_t begin, int64_t end) {\n");
  out += cat("  (void)data, (void)sizes, (void)scratch, (void)begin, (void)end;\n  ",
             text.returns ? "return " : "", text.function, "(\n");
  for (size_t i = 0; i < text.parameters.size(); ++i)
    out += cat("    /* ", text.parameters[i].name, " */ ", argument(kernel, text.parameters[i]),
               i + 1 < text.parameters.size() ? ",\n" : "");
  return cat(out, ");\n", text.returns ? "" : "  return 0;\n", "}\n");
}

UserCudaText user_kernel_cuda(const UserKernel& kernel, const std::vector<std::string>& data,
                              const std::vector<std::string>& sizes) {
  using Kind = Parameter::Kind;
  const UserKernel::Text& text = *kernel.cuda;
  const UserArguments at(kernel);
  UserCudaText out;
  out.declarations = kCudaTypes.substr(1);
  for (const auto& [name, dtype] : kernel.types)
    out.declarations += cat("typedef ", user_element_type(dtype, true), " ", name, ";\n");
  out.declarations +=
      cat("#line 1 ", quoted(text.place), "\n", as_device_text(text.source), "\n#line 1 \"kernel\"\n");
  const auto list = [&](size_t tensor, bool strides) {
    std::vector<std::string> items;
    for (size_t d = 0; d < kernel.tensor(tensor).rank; ++d)
      items.push_back(sizes[strides ? at.stride(tensor, d) : at.dim(tensor, d)]);
    return items.empty() ? std::string("0") : join(items, ", ");
  };
  std::string before;
  std::vector<std::string> arguments;
  for (size_t i = 0; i < text.parameters.size(); ++i) {
    const Parameter& p = text.parameters[i];
    const auto array = [&](const std::string& type, const std::string& items) {
      before += cat("  const ", type, " a", i, "[] = {", items, "};\n");
      return cat("a", i);
    };
    switch (p.kind) {
      case Kind::kData:
        arguments.push_back(cat("(", p.index < kernel.reads.size() ? "const " : "",
                                user_element_type(kernel.tensor(p.index).dtype, true), "*)(", data[p.index],
                                ")"));
        break;
      case Kind::kDims: arguments.push_back(array("int64_t", list(p.index, false))); break;
      case Kind::kStrides: arguments.push_back(array("int64_t", list(p.index, true))); break;
      case Kind::kRank: arguments.push_back(cat("(int64_t)", kernel.tensor(p.index).rank)); break;
      case Kind::kSize: arguments.push_back(sizes[at.size(p.index)]); break;
      case Kind::kReal:
        arguments.push_back(cat("__longlong_as_double(", sizes[at.size(p.index)], ")"));
        break;
      case Kind::kCount: arguments.push_back(cat("(int64_t)", p.index)); break;
      case Kind::kNumbers:
        arguments.push_back(array(p.real ? "double" : "int64_t", p.text.empty() ? "0" : p.text));
        break;
      case Kind::kBegin:
      case Kind::kEnd:
      case Kind::kScratch: break;  // of texts in C alone
    }
  }
  out.call = cat(before, "  ", text.function, "(", join(arguments, ", "), ");\n");
  return out;
}

}  // namespace stridec::codegen
