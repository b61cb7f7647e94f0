#include "compiler/codegen/emit_snippets.h"

#include <map>
#include <mutex>
#include <tuple>

#include "compiler/base/check.h"
#include "compiler/base/dtype.h"
#include "compiler/base/text.h"
#include "compiler/codegen/embedded.h"
#include "compiler/codegen/math_text.h"

namespace stridec::codegen {
namespace {

int type_bits(std::string_view type) { return std::stoi(std::string(type.substr(1))); }

// ---- integers

// $T is the type, $U its unsigned counterpart, $B its width in bits.
std::string integer_text(std::string_view op, bool is_signed) {
  const std::string safe = is_signed ? "  $T@ one = ((b == ($T@)0) | (b == ($T@)-1)) ? ($T@)1 : b;\n"
                                     : "  $T@ one = b == ($T@)0 ? ($T@)1 : b;\n";
  if (op == "div" && is_signed)
    return "static inline $T@ sd_idiv($T@ a, $T@ b) {\n" + safe +
           "  $T@ q = a / one, n = ($T@)(($U@)0 - ($U@)a);\n"
           "  return b == ($T@)0 ? ($T@)0 : b == ($T@)-1 ? n : q;\n}\n";
  if (op == "div")
    return "static inline $T@ sd_idiv($T@ a, $T@ b) {\n" + safe +
           "  return b == ($T@)0 ? ($T@)0 : ($T@)(a / one);\n}\n";
  if (op == "rem" || (op == "mod" && !is_signed))
    return "static inline $T@ sd_i" + std::string(op) + "($T@ a, $T@ b) {\n" + safe +
           "  return b == ($T@)0 ? ($T@)0 : ($T@)(a % one);\n}\n";
  if (op == "mod")
    return "static inline $T@ sd_imod($T@ a, $T@ b) {\n" + safe +
           "  $T@ r = ($T@)(a % one);\n"
           "  r = ((r != ($T@)0) & (($T@)(r ^ b) < ($T@)0)) ? ($T@)(r + b) : r;\n"
           "  return b == ($T@)0 ? ($T@)0 : r;\n}\n";
  if (op == "shl")
    return "static inline $T@ sd_shl($T@ a, $T@ b) {\n"
           "  $U@ n = ($U@)b;\n"
           "  $T@ r = ($T@)(($U@)a << (n & ($U@)($B - 1)));\n"
           "  return n < ($U@)$B ? r : ($T@)0;\n}\n";
  if (op == "shr")
    return "static inline $T@ sd_shr($T@ a, $T@ b) {\n"
           "  $U@ n = ($U@)b;\n"
           "  $T@ r = ($T@)(a >> ($T@)(n & ($U@)($B - 1)));\n"
           "  return n < ($U@)$B ? r : ($T@)0;\n}\n";
  if (op == "pow") {
    // By repeated squaring. A negative power of anything but 1 and -1 is 0.
    const std::string unit =
        "(a == ($T@)1 ? ($U@)1 : a == ($T@)-1 ? ((e & ($U@)1) != ($U@)0 ? ($U@)-1 : "
        "($U@)1) : ($U@)0)";
    return "static inline $T@ sd_pow($T@ a, $T@ b) {\n"
           "  $U@ e = ($U@)b, r = ($U@)1, f = ($U@)a;\n"
           "  for (int bit = 0; bit < $B; ++bit) {\n"
           "    r = ((e >> ($U@)bit) & ($U@)1) != ($U@)0 ? ($U@)(r * f) : r;\n"
           "    f = ($U@)(f * f);\n"
           "  }\n" +
           (is_signed ? "  r = b < ($T@)0 ? " + unit + " : r;\n" : std::string()) + "  return ($T@)r;\n}\n";
  }
  if (op == "floordiv")
    return "static inline $T@ sd_vfloordiv($T@ a, $T@ b) {\n" + safe +
           "  $T@ q = a / one, r = a - q * one;\n"
           "  q = ((r != ($T@)0) & ((r ^ b) < ($T@)0)) ? q - 1 : q;\n"
           "  return b == ($T@)-1 ? -a : q;\n}\n";
  if (op == "mod_floor")
    return "static inline $T@ sd_vmod($T@ a, $T@ b) {\n" + safe +
           "  $T@ r = a % one;\n"
           "  return ((r != ($T@)0) & ((r ^ b) < ($T@)0)) ? r + b : r;\n}\n";
  return {};
}

// ---- storage floats

// The constants of compiler/base/numeric.cpp, in terms of f32.
struct Format {
  int mantissa, bias, sign_shift;
  unsigned largest, infinity, nan;
  bool negative_zero;
};
const Format* format(DType type) {
  static const std::map<DType, Format> formats = {
      {DType::kF16, {10, 15, 15, 0x7bff, 0x7c00, 0x7e00, true}},
      {DType::kBF16, {7, 127, 15, 0x7f7f, 0x7f80, 0x7fc0, true}},
      {DType::kTF32, {10, 127, 18, 0x3fbff, 0x3fc00, 0x3fe00, true}},
      {DType::kF8E4M3, {3, 7, 7, 0x7e, 0, 0x7f, true}},
      {DType::kF8E4M3Fnuz, {3, 8, 7, 0x7f, 0, 0x80, false}},
      {DType::kF8E5M2, {2, 15, 7, 0x7b, 0x7c, 0x7e, true}},
      {DType::kF8E5M2Fnuz, {2, 16, 7, 0x7f, 0, 0x80, false}},
      {DType::kF4E2M1, {1, 1, 3, 0x7, 0, 0, true}},
      {DType::kF6E2M3, {3, 1, 5, 0x1f, 0, 0, true}},
      {DType::kF6E3M2, {2, 3, 5, 0x1f, 0, 0, true}},
  };
  auto found = formats.find(type);
  return found == formats.end() ? nullptr : &found->second;
}

std::string storage_of(DType type) { return cat("u", 8 * byte_size(type)); }

std::string encode_text(DType type, bool saturate) {
  const std::string storage = storage_of(type);
  const std::string head =
      cat("static inline ", storage, "@ sd_", saturate ? "to_sat_" : "to_", name(type), "(f32@ x) {\n");
  const std::string tail = byte_size(type) == 4   ? "  return code << 13;\n}\n"
                           : byte_size(type) == 2 ? "  return sd_narrow16(code);\n}\n"
                                                  : "  return sd_narrow8(code);\n}\n";
  if (type == DType::kF8E8M0) {
    const std::string round =
        saturate ? "  u32@ code = a >> 23; code += (a & 0x7fffffu) != 0u ? (u32@)1u : (u32@)0u;\n"
                 : "  u32@ code = (a + 0x400000u) >> 23;\n";
    // Subnormal f32 values are between 2^-149 and 2^-126; 2^-127 (bits 0x400000) is the smallest power of
    // this format.
    const std::string tiny =
        saturate ? "  code = a <= 0x400000u ? (u32@)0u : code;\n"
                 : "  code = a < 0x600000u ? (a < 0x300000u ? (u32@)255u : (u32@)0u) : code;\n";
    const std::string over =
        saturate ? "  code = a > 0x7f800000u ? (u32@)255u : code > 254u ? (u32@)254u : code;\n"
                 : "  code = a >= 0x7f800000u ? (u32@)255u : code;\n";
    return head + "  u32@ a = __builtin_bit_cast(u32@, x) & 0x7fffffffu;\n" + round + tiny + over + tail;
  }
  if (type == DType::kBF16 && !saturate) {
    // The codes are the upper halves of rounded 32-bit values, infinity's too: bf16 has the exponent range of
    // f32.
    const std::string halves =
        "  u32@ u = __builtin_bit_cast(u32@, x), code = (u + 32767u + ((u >> 16) & 1u)) >> 16;\n"
        "  code = (u & 0x7fffffffu) > 0x7f800000u ? ((u >> 16) & 32768u) | 32704u : code;\n" +
        tail;
    // The instruction flushes subnormals to zero and keeps the payload of NaNs: such values take the generic
    // path.
    return cat(
        "#if defined(__AVX512BF16__) && ` == 16\n", head,
        "  typedef __bf16 H __attribute__((vector_size(32)));\n"
        "  if (__builtin_expect(__builtin_ia32_fpclassps512_mask(x, 0xa1, (u16)-1) == 0, 1))\n"
        "    return __builtin_bit_cast(u16@, __builtin_ia32_cvtneps2bf16_512_mask(x, H{}, (u16)-1));\n",
        halves, "#else\n", head, halves, "#endif\n");
  }
  const Format& f = *format(type);
  const unsigned overflow = saturate || (f.infinity == 0 && f.nan == 0) ? f.largest
                            : f.infinity                                ? f.infinity
                                                                        : f.nan;
  std::string out = head;
  out += "  u32@ u = __builtin_bit_cast(u32@, x), a = u & 0x7fffffffu;\n";
  out += cat("  u32@ s = (u >> 31) << ", f.sign_shift, ";\n");
  out +=
      cat("  u32@ code = ((a + ", (1u << (22 - f.mantissa)) - 1, "u + ((a >> ", 23 - f.mantissa,
          ") & 1u)) >> ", 23 - f.mantissa, ") - ", static_cast<unsigned>(127 - f.bias) << f.mantissa, "u;\n");
  if (f.bias != 127) {  // with f32's exponent range subnormals round like all other values
    // Below the smallest normal number: adding a power of two whose unit in the last place is the format's
    // smallest subnormal rounds to its multiples.
    const unsigned magic = static_cast<unsigned>(127 + 24 - f.bias - f.mantissa) << 23;
    out +=
        cat("  u32@ tiny = __builtin_bit_cast(u32@, __builtin_bit_cast(f32@, a) + __builtin_bit_cast(f32@, "
            "(u32@)",
            magic, "u)) - ", magic, "u;\n");
    out += cat("  code = a < ", static_cast<unsigned>(128 - f.bias) << 23, "u ? tiny : code;\n");
  }
  if (f.negative_zero) {
    out += cat("  code = (code > ", f.largest, "u ? (u32@)", overflow, "u : code) | s;\n");
    out += f.nan ? cat("  code = a > 0x7f800000u ? (s | ", f.nan, "u) : code;\n")
                 : cat("  code = a > 0x7f800000u ? (u32@)", 1u << f.sign_shift, "u : code;\n");
  } else {
    const std::string over = overflow == f.nan ? cat("(u32@)", f.nan, "u") : cat("(s | ", overflow, "u)");
    out += cat("  code = code > ", f.largest, "u ? ", over, " : code == 0u ? code : (code | s);\n");
    out += cat("  code = a > 0x7f800000u ? (u32@)", f.nan, "u : code;\n");
  }
  return out + tail;
}

std::string decode_text(DType type) {
  const std::string storage = storage_of(type);
  if (type == DType::kTF32)
    return cat("static inline f32@ sd_from_tf32(u32@ h) { return __builtin_bit_cast(f32@, h); }\n");
  std::string out =
      cat("static inline f32@ sd_from_", name(type), "(", storage, "@ h) {\n  u32@ u = sd_widen(h);\n");
  if (type == DType::kBF16) return out + "  return __builtin_bit_cast(f32@, u << 16);\n}\n";
  if (type == DType::kF8E8M0)
    return out +
           "  u32@ b = u == 255u ? (u32@)0x7fc00000u : u == 0u ? (u32@)0x400000u : u << 23;\n"
           "  return __builtin_bit_cast(f32@, b);\n}\n";
  const Format& f = *format(type);
  const unsigned sign = 1u << f.sign_shift;
  out += cat("  u32@ code = u & ", sign - 1, "u, s = (u & ", sign, "u) << ", 31 - f.sign_shift, ";\n");
  out +=
      cat("  u32@ b = (code << ", 23 - f.mantissa, ") + ", static_cast<unsigned>(127 - f.bias) << 23, "u;\n");
  const unsigned least = static_cast<unsigned>(127 + 1 - f.bias - f.mantissa) << 23;
  out += cat("  u32@ tiny = __builtin_bit_cast(u32@, sd_u2f(code) * __builtin_bit_cast(f32@, (u32@)", least,
             "u));\n");
  out += cat("  b = code < ", 1u << f.mantissa, "u ? tiny : b;\n");
  if (f.infinity)
    out += cat("  b = code > ", f.largest, "u ? (code == ", f.infinity,
               "u ? (u32@)0x7f800000u : (u32@)0x7fc00000u) : b;\n");
  else if (f.negative_zero && f.nan)
    out += cat("  b = code > ", f.largest, "u ? (u32@)0x7fc00000u : b;\n");
  out += "  b |= s;\n";
  if (!f.negative_zero) out += cat("  b = u == ", sign, "u ? (u32@)0x7fc00000u : b;\n");
  return out + "  return __builtin_bit_cast(f32@, b);\n}\n";
}

// ---- masked memory

// Splits the vector into pieces of 64, 32 or 16 bytes. The builtins take a vector of integers of the element
// size and a mask of at least as many bits as it has lanes.
std::string masked_memory_text(std::string_view type, int width, bool load) {
  const int bytes = type_bits(type) / 8;
  const int lanes = std::min(width, 64 / bytes);
  const int piece_bytes = std::max(16, lanes * bytes), piece_lanes = piece_bytes / bytes;
  const char* element = bytes == 1 ? "qi" : bytes == 2 ? "hi" : bytes == 4 ? "si" : "di";
  const char* spelled = bytes == 1 ? "char" : bytes == 2 ? "short" : bytes == 4 ? "int" : "long long";
  // The builtins take a pointer to the vector, except for 512 bits of 32- and 64-bit elements, where it is a
  // pointer to the element.
  const char* pointee = piece_bytes == 64 && bytes >= 4 ? spelled : "V";
  const char* mask = piece_lanes == 64   ? "unsigned long long"
                     : piece_lanes == 32 ? "unsigned"
                     : piece_lanes == 16 ? "unsigned short"
                                         : "unsigned char";
  auto list = [](int from, int count, int real) {
    std::string out;
    for (int l = 0; l < count; ++l) out += cat(", ", l < real ? from + l : -1);
    return out;
  };
  const std::string types =
      cat("  typedef ", spelled, " V __attribute__((__vector_size__(", piece_bytes, ")));\n  typedef ", type,
          " P __attribute__((ext_vector_type(", piece_lanes, ")));\n");
  const std::string suffix = cat(element, piece_bytes * 8, "_mask");
  const std::string limit = piece_lanes > lanes ? cat(" & ", (1u << lanes) - 1, "u") : "";
  auto bits = [&](int at) { return cat("(", mask, ")((bits >> ", at, ")", limit, ")"); };
  std::string out;
  if (load) {
    // The name contains the width, because loads of several widths differ in their return type only.
    out = cat("static inline ", type, "@ sd_mload", width, "(const ", type, "* p, u64 bits) {\n", types);
    std::vector<std::string> pieces;
    for (int at = 0; at < width; at += lanes) {
      pieces.push_back(cat("v", at));
      out += cat("  const P v", at, " = __builtin_bit_cast(P, __builtin_ia32_loaddqu", suffix, "((const ",
                 pointee, "*)(p + ", at, "), V{}, ", bits(at), "));\n");
    }
    if (piece_lanes > lanes)
      return out + cat("  return __builtin_shufflevector(v0, v0", list(0, lanes, lanes), ");\n}\n");
    for (int size = lanes; pieces.size() > 1; size *= 2) {
      std::vector<std::string> wider;
      for (size_t i = 0; i + 1 < pieces.size(); i += 2) {
        wider.push_back(cat("w", size, "_", i));
        out += cat("  const auto ", wider.back(), " = __builtin_shufflevector(", pieces[i], ", ",
                   pieces[i + 1], list(0, 2 * size, 2 * size), ");\n");
      }
      pieces = wider;
    }
    return out + cat("  return ", pieces[0], ";\n}\n");
  }
  out = cat("static inline void sd_mstore(", type, "* p, u64 bits, ", type, "@ r) {\n", types);
  for (int at = 0; at < width; at += lanes)
    out += cat(
        "  __builtin_ia32_storedqu", suffix, "((", pointee, "*)(p + ", at, "), __builtin_bit_cast(V, (P)",
        width == piece_lanes ? "r" : cat("__builtin_shufflevector(r, r", list(at, piece_lanes, lanes), ")"),
        "), ", bits(at), ");\n");
  return out + "}\n";
}

// sd_mload with AVX2, for elements of 32 and 64 bits. Pieces are 32 or 16 bytes; the sign of each integer of
// the mask selects its element.
std::string masked_load_avx2_text(std::string_view type, int width) {
  const int bytes = type_bits(type) / 8, lanes = std::min(width, 32 / bytes);
  const std::string integer = bytes == 4 ? "int" : "long long", size = lanes * bytes == 32 ? "256" : "";
  std::string each;
  for (int l = 0; l < lanes; ++l) each += cat(l ? ", " : "", 1 << l);
  std::string out =
      cat("static inline ", type, "@ sd_mload", width, "(const ", type, "* p, u64 bits) {\n  typedef ",
          integer, " V __attribute__((__vector_size__(", lanes * bytes, ")));\n  const V each = {", each,
          "};\n  union { V pieces[", width / lanes, "]; ", type, "@ all; } r;\n");
  for (int i = 0; i < width / lanes; ++i)
    out +=
        cat("  r.pieces[", i, "] = __builtin_ia32_maskload", bytes == 4 ? "d" : "q", size, "((const V*)(p + ",
            i * lanes, "), (V)(((V{} + (", integer, ")(bits >> ", i * lanes, ")) & each) == each));\n");
  return out + "  return r.all;\n}\n";
}

// sd_near: gathers 32-bit elements at non-decreasing offsets up to `more` < 16 from p by one load and a
// permutation; lanes without a bit become 0.
std::string near_text(std::string_view type) {
  return cat("static inline ", type, "@ sd_near(const ", type, "* p, i64 more, i64@ at, u64 bits) {\n",
             "  typedef int V __attribute__((vector_size(64)));\n",
             "  const V v = __builtin_bit_cast(V, sd_mload16(p, (2ul << more) - 1));\n",
             "  const V lanes = __builtin_bit_cast(V, __builtin_convertvector(at, i32@));\n",
             "  return __builtin_bit_cast(", type,
             "@, __builtin_ia32_selectd_512((unsigned short)bits, __builtin_ia32_permvarsi512(v, lanes), "
             "V{}));\n}\n");
}

// sd_table: looks up an index vector in a 256-byte table by two permutations, one per half of the table.
std::string table_text(int width) {
  std::string lanes;
  for (int i = 0; i < 64; ++i) lanes += i < width ? cat(", ", i) : ", -1";
  std::string live;
  for (int i = 0; i < width; ++i) live += cat(", ", i);
  return cat("static inline u8@ sd_table(const u8* t, u8@ x) {\n",
             "  typedef char V __attribute__((vector_size(64)));\n",
             "  typedef char L __attribute__((vector_size(64), aligned(1), may_alias));\n",
             "  typedef u8 R __attribute__((ext_vector_type(64)));\n",
             "  const V at = __builtin_bit_cast(V, (R)__builtin_shufflevector(x, x", lanes, "));\n",
             "  const L* const p = (const L*)t;\n",
             "  const V low = __builtin_ia32_vpermi2varqi512(p[0], at, p[1]);\n",
             "  const V high = __builtin_ia32_vpermi2varqi512(p[2], at, p[3]);\n",
             "  const R found = __builtin_bit_cast(R, at < 0 ? high : low);\n",
             "  return __builtin_shufflevector(found, found", live, ");\n}\n");
}

// sd_beside_N: interleaves up to N byte vectors into the 32-bit lanes of a vector. sd_beside_2 widens the
// bytes to 16 bits. sd_beside_4 permutes 32-bit elements and then bytes, by whole-vector shuffles; absent
// bytes are unspecified.
std::string beside_text(int most, int width) {
  const auto list = [](int count, const auto& at) {
    std::string out;
    for (int i = 0; i < count; ++i) out += cat(i ? ", " : "", at(i));
    return out;
  };
  const auto type = [](const char* element, int lanes) {
    return cat(element, " __attribute__((ext_vector_type(", lanes, ")))");
  };
  if (most == 2) {
    return cat("static inline i32@ sd_beside_2(u8@ a, u8@ b) {\n  typedef ", type("short W", 2 * width),
               ";\n  return __builtin_bit_cast(i32@, __builtin_convertvector(__builtin_shufflevector(a, b, ",
               list(2 * width, [&](int i) { return i / 2 + i % 2 * width; }), "), W));\n}\n");
  }
  std::string out;
  for (int count = 2; count <= most; ++count) {
    const auto there = [&](int vector, int at) { return vector < count ? at : -1; };
    out += cat("static inline i32@ sd_beside_4(u8@ a, u8@ b", count > 2 ? ", u8@ c" : "",
               count > 3 ? ", u8@ d" : "", ") {\n  typedef ", type("u8 B", 4 * width), ";\n");
    const std::string all = list(2 * width, [](int i) { return i; });
    out += cat("  const auto low = __builtin_shufflevector(a, b, ", all, ");\n");
    out += cat("  const auto high = __builtin_shufflevector(", count > 2 ? "c" : "a", ", ",
               count > 3 ? "d" : "a", ", ", list(2 * width, [&](int i) { return there(2 + i / width, i); }),
               ");\n");
    out += cat("  const i32@ x = __builtin_bit_cast(i32@, __builtin_shufflevector(low, high, ",
               list(4 * width, [](int i) { return i; }), "));\n");
    out += cat("  const B y = __builtin_bit_cast(B, __builtin_shufflevector(x, x, ",
               list(width, [&](int i) { return there(i % 4, i % 4 * (width / 4) + i / 4); }), "));\n");
    out += cat("  return __builtin_bit_cast(i32@, __builtin_shufflevector(y, y, ",
               list(4 * width, [&](int i) { return there(i % 4, i / 16 * 16 + i % 4 * 4 + i % 16 / 4); }),
               "));\n}\n");
  }
  return out;
}

// ---- the snippets by name

std::string fmod_text() {
  // Exact if the quotient fits in the mantissa (one fused step, then at most one correction); otherwise by
  // long division.
  return R"(static inline $F sd_fmod_slow($F a, $F b) {
  $F x = a < 0 ? -a : a, y = b < 0 ? -b : b;
  if (!(y > 0) || !(x <= $MAX)) return (a * b) / (a * b);
  if (!(y <= $MAX)) return a;
  while (x >= y) {
    $F s = y;
    while (s <= x * ($F)0.5) s += s;
    x -= s;
  }
  return __builtin_copysign$SUFFIX(x, a);
}
)";
}

Snippet make(std::string_view full, int width, bool f16c) {
  const size_t dot = full.find('.');
  const std::string op(full.substr(0, dot)),
      type = dot == std::string_view::npos ? "" : std::string(full.substr(dot + 1));
  Snippet snippet{std::string(full), {}, {}};
  const bool integer = type.size() >= 2 && (type[0] == 'i' || type[0] == 'u') && std::isdigit(type[1]);
  const bool floating = type == "f32" || type == "f64";
  if (integer) snippet.text = integer_text(op, type[0] == 'i');
  if (!snippet.text.empty()) {
    snippet.text = replaced(snippet.text, "$T", type);
    snippet.text = replaced(snippet.text, "$U", "u" + type.substr(1));
    snippet.text = replaced(snippet.text, "$B", type.substr(1));
    return snippet;
  }
  const std::string mask_type = type.empty() || type == "bool" ? ""
                                : integer || floating          ? "i" + type.substr(1)
                                                               : "";
  if (op == "select") {
    snippet.text =
        type == "bool"
            ? "static inline bool@ sd_select(bool@ c, bool@ a, bool@ b) { return (c & a) | (~c & b); }\n"
            : cat("static inline ", type, "@ sd_select(bool@ c, ", type, "@ a, ", type,
                  "@ b) { return (__builtin_convertvector(c, ", mask_type, "@) != (", mask_type,
                  "@)0) ? a : b; }\n");
  } else if (op == "table") {
    snippet.text = table_text(width);
  } else if (op == "beside") {
    snippet.text = beside_text(type == "2" ? 2 : 4, width);
  } else if (op == "product") {
    snippet.text = cat("static inline ", type, "@ sd_product(", type, "@ a, ", type,
                       "@ b) {\n#pragma clang fp contract(off)\n  return a * b;\n}\n");
  } else if ((op == "min" || op == "max") && floating) {
    snippet.text = cat("static inline ", type, "@ sd_", op == "min" ? "fmin" : "fmax", "(", type, "@ a, ",
                       type, "@ b) { return a != a ? a : a ", op == "min" ? "<" : ">", " b ? a : b; }\n");
  } else if (op == "rem" && floating) {
    snippet.needs = {"fmod." + type + "!1"};
    if (width == 1)
      snippet.text = cat("static inline ", type, " sd_frem(", type, " a, ", type,
                         " b) { return sd_fmod_slow(a, b); }\n");
    else if (type == "f32")
      // In f64 the product of a quotient below 2^24 and a divisor is exact, so the remainder is exact, off by
      // at most one divisor.
      snippet.text =
          "static inline f32@ sd_frem(f32@ a, f32@ b) {\n"
          "  const f32@ p = __builtin_elementwise_abs(a), q = __builtin_elementwise_abs(b);\n"
          "  const i32@ small = (p < q * 0x1p24f) & (q < __builtin_inff());\n"
          "  const f64@ x = __builtin_convertvector(p, f64@), y = __builtin_convertvector(q, f64@);\n"
          "  f64@ rest = x - __builtin_elementwise_trunc(x / y) * y;\n"
          "  rest = rest < 0 ? rest + y : rest;\n"
          "  rest = rest >= y ? rest - y : rest;\n"
          "  const u32@ sign = __builtin_bit_cast(u32@, a) & 0x80000000u;\n"
          "  const f32@ narrow = __builtin_convertvector(rest, f32@);\n"
          "  f32@ r = __builtin_bit_cast(f32@, __builtin_bit_cast(u32@, narrow) | sign);\n"
          "  if (!__builtin_reduce_and(small))\n"
          "    for (int l = 0; l < `; ++l) if (!small[l]) r[l] = sd_fmod_slow(a[l], b[l]);\n"
          "  return r;\n}\n";
    else
      snippet.text = cat("static inline ", type, "@ sd_frem(", type, "@ a, ", type, "@ b) { ", type,
                         "@ r; for (int l = 0; l < `; ++l) r[l] = sd_fmod_slow(a[l], b[l]); return r; }\n");
  } else if (op == "fmod") {
    snippet.text = replaced(fmod_text(), "$F", type);
    snippet.text =
        replaced(snippet.text, "$MAX", type == "f32" ? "0x1.fffffep127f" : "0x1.fffffffffffffp1023");
    snippet.text = replaced(snippet.text, "$SUFFIX", type == "f32" ? "f" : "");
  } else if (op == "mod" && floating) {
    snippet.needs = {"rem." + type};
    snippet.text = cat("static inline ", type, "@ sd_fmod(", type, "@ a, ", type, "@ b) { ", type,
                       "@ r = sd_frem(a, b); ", mask_type, "@ flip = (", mask_type,
                       "@)((r != 0) & ((r < 0) ^ (b < 0))); return flip != 0 ? r + b : r; }\n");
  } else if (op == "bits") {
    const char* word = width <= 8 ? "u8" : width == 16 ? "u16" : width == 32 ? "u32" : "u64";
    snippet.text = cat("static inline u64 sd_bits(bool@ c) { return (u64)__builtin_bit_cast(", word, ", c)",
                       width < 8 ? cat(" & ", (1 << width) - 1, "u") : "", "; }\n");
  } else if (op == "from_bits") {
    const char* word = width <= 8 ? "u8" : width == 16 ? "u16" : width == 32 ? "u32" : "u64";
    snippet.text = cat("static inline bool@ sd_bool@(u64 bits) { return __builtin_bit_cast(bool@, (", word,
                       ")bits); }\n");
  } else if (op == "iota") {
    std::string list;
    for (int l = 0; l < width; ++l) list += cat(l ? ", " : "", l);
    snippet.text = cat("static const ", type, "@ sd_iota_", type, "@ = {", list, "};\n");
  } else if (op == "narrow") {
    snippet.text =
        width == 1 ? "static inline u8 sd_narrow8(u32 x) { return (u8)x; }\n"
                     "static inline u16 sd_narrow16(u32 x) { return (u16)x; }\n"
                   : "static inline u8@ sd_narrow8(u32@ x) { return __builtin_convertvector(x, u8@); }\n"
                     "static inline u16@ sd_narrow16(u32@ x) { return __builtin_convertvector(x, u16@); }\n";
  } else if (op == "widen") {
    snippet.text =
        width == 1 ? "static inline u32 sd_widen(u8 x) { return x; }\n"
                     "static inline u32 sd_widen(u16 x) { return x; }\n"
                     "static inline f32 sd_u2f(u32 x) { return (f32)(i32)x; }\n"
                   : "static inline u32@ sd_widen(u8@ x) { return __builtin_convertvector(x, u32@); }\n"
                     "static inline u32@ sd_widen(u16@ x) { return __builtin_convertvector(x, u32@); }\n"
                     "static inline f32@ sd_u2f(u32@ x) { return __builtin_convertvector((i32@)x, f32@); }\n";
  } else if (op == "odd") {
    const std::string narrow = width == 1 ? "(f32)x" : "__builtin_convertvector(x, f32@)";
    const std::string wide = width == 1 ? "(f64)r" : "__builtin_convertvector(r, f64@)";
    const std::string to32 = width == 1 ? "(i32)" : "";
    auto cond = [&](const std::string& c) {
      return width == 1 ? c : cat("__builtin_convertvector(", c, ", i32@)");
    };
    snippet.text =
        cat("static inline f32@ sd_odd(f64@ x) {\n  f32@ r = ", narrow, ";\n  f64@ back = ", wide,
            ";\n  u32@ u = __builtin_bit_cast(u32@, r);\n",
            // A zero result from a tiny value must move away from zero, whatever its sign.
            "  f64@ ax = x < 0 ? -x : x, ab = back < 0 ? -back : back;\n  u32@ moved = (", cond("ab > ax"),
            ") ? u - 1u : u + 1u;\n  moved = (u & 1u) != 0u ? u : moved;\n  moved = (", cond("back != x"),
            ") ? moved : u;\n  moved = (", cond("x != x"),
            ") ? u : moved;\n  return __builtin_bit_cast(f32@, moved);\n}\n");
  } else if (op == "halves") {  // for values that are exact in bf16
    snippet.needs = {"narrow"};
    snippet.text =
        "static inline u16@ sd_halves(f32@ x) { return sd_narrow16(__builtin_bit_cast(u32@, x) >> 16); }\n";
  } else if (op == "to" || op == "to_sat" || op == "from") {
    const DType dtype = *parse_dtype(type);
    if (dtype == DType::kF16 && f16c && op != "to_sat") {
      snippet.text =
          width == 1
              ? op == "to"
                    ? "static inline u16 sd_to_f16(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }\n"
                    : "static inline f32 sd_from_f16(u16 h) { return (f32)__builtin_bit_cast(_Float16, h); "
                      "}\n"
          : op == "to"
              ? "typedef _Float16 half@ __attribute__((ext_vector_type(`)));\n"
                "static inline u16@ sd_to_f16(f32@ x) { return __builtin_bit_cast(u16@, "
                "__builtin_convertvector(x, half@)); }\n"
              : "typedef _Float16 half@ __attribute__((ext_vector_type(`)));\n"
                "static inline f32@ sd_from_f16(u16@ h) {\n"
                "  f32@ x = __builtin_convertvector(__builtin_bit_cast(half@, h), f32@);\n"
                // LLVM performs comparisons of widened values in the narrow type, for which CPUs without FP16
                // have no vector instruction. The asm prevents that.
                "#ifdef __AVX512F__\n  enum { n = ` < 16 ? ` : 16 };\n#else\n  enum { n = ` < 8 ? ` : 8 "
                "};\n#endif\n"
                "  typedef float part __attribute__((ext_vector_type(n)));\n"
                "  for (int i = 0; n >= 4 && i < ` / n; ++i) __asm__(\"\" : \"+v\"(((part*)&x)[i]));\n"
                "  return x;\n}\n";
    } else if (op == "from") {
      snippet.needs = {"widen"};
      snippet.text = decode_text(dtype);
    } else {
      snippet.needs = {"narrow"};
      snippet.text = encode_text(dtype, op == "to_sat");
    }
  } else if (op == "fourier") {
    snippet.text = fourier_text();
  } else if (op == "philox") {
    snippet.text = philox_text();
  } else if (op == "eigen") {
    snippet.text = eigen_text();
  } else if (op == "mload_avx2") {
    snippet.text = masked_load_avx2_text(type, width);
  } else if (op == "mload" || op == "mstore") {
    snippet.text = masked_memory_text(type, width, op == "mload");
  } else if (op == "quotient") {
    snippet.text =
        "static inline i64@ sd_quotient(i64@ a, i64@ b) {\n"
        "  return __builtin_convertvector(__builtin_elementwise_floor(__builtin_convertvector(a, f64@) / "
        "__builtin_convertvector(b, f64@)), i64@);\n}\n"
        "static inline i64@ sd_remainder(i64@ a, i64@ b) { return a - sd_quotient(a, b) * b; }\n";
  } else if (op == "near") {
    snippet.needs = {cat("mload.", type)};
    snippet.text = near_text(type);
  } else if (const std::optional<MathText> math = math_text(op, type, width)) {
    snippet.needs = math->needs;
    snippet.text = math->text;
  } else {
    STRIDEC_CHECK(false, cat("no snippet ", full));
  }
  return snippet;
}

}  // namespace

const Snippet& find_snippet(std::string_view name, int width, bool f16c) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int, bool>, Snippet> made;
  const std::lock_guard lock(mutex);
  const std::tuple key(std::string(name), width, f16c);
  auto found = made.find(key);
  if (found == made.end()) found = made.emplace(key, make(name, width, f16c)).first;
  return found->second;
}

}  // namespace stridec::codegen
