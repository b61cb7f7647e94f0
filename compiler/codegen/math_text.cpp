#include "compiler/codegen/math_text.h"

#include <algorithm>
#include <initializer_list>

#include "compiler/base/text.h"
#include "compiler/codegen/math_functions.h"

namespace stridec::codegen {
namespace {

// The constants of the two precisions.

struct Constant {
  std::string_view name, f32, f64;
};
constexpr Constant kConstants[] = {
    {"$LOG2E", "0x1.715476p+0f", "0x1.71547652b82fep+0"},
    {"$LN2_HI", "0x1.62e000p-1f", "0x1.62e42ff000000p-1"},
    {"$LN2_LO", "0x1.0bfbe8p-15f", "-0x1.718432a1b0e26p-35"},
    {"$LN2", "0x1.62e430p-1f", "0x1.62e42fefa39efp-1"},
    {"$MAGIC", "0x1.8p23f", "0x1.8p52"},  // adding it rounds to an integer, in the low bits
    {"$MAGICBITS", "0x4b400000", "0x4338000000000000l"},
    {"$BIAS", "127", "1023"},
    {"$MANTISSA", "23", "52"},
    {"$EXP_MAX", "89.0f", "710.0"},
    {"$EXP_MIN", "-104.0f", "-746.0"},
    {"$INF", "__builtin_inff()", "__builtin_inf()"},
    {"$NAN", "__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
    {"$TINY", "0x1p-126f", "0x1p-1022"},  // the smallest normal number
    {"$SQRT_HALF", "0x3f3504f3", "0x3fe6a09e667f3bcdl"},
    {"$TWO_M", "0x1p23f", "0x1p52"},
    {"$SPLIT", "4097.0f", "134217729.0"},  // splits a number into two of half its bits
    {"$CDF_MAX", "14.42f", "38.6"},        // the tail of the normal distribution underflows to 0 from here on
    {"$CDF_B", "2.5f", "3.5"},
    {"$HALF_WAY", "64", "512"},
    {"$DOWN", "0x1p-64f", "0x1p-512"},
    {"$SIGN", "0x80000000u", "0x8000000000000000ul"},
    {"$FRACTION", "0x007fffff", "0x000fffffffffffffl"},
    // (exp(r) - 1 - r) / r^2, |r| <= ln 2 / 2
    {"$EXP_Q", "0.5f, 0.166665733f, 0.0416665487f, 0.00836377405f, 0.00139269268f",
     "0.5, 0.16666666666666671, 0.041666666666666671, 0.0083333333333255443, 0.0013888888888883327, "
     "0.00019841269876864356, 2.4801587327007187e-05, 2.7557252833516911e-06, 2.75572718102198e-07, "
     "2.5106274733573296e-08, 2.0915442297780116e-09"},
    // (b + a) exp(a^2 / 2) erfc(a / sqrt(2)) / 2 in a / (b + a) - 1/2, a >= 0
    {"$CDF_R",
     "0.706656635f, -0.867383957f, 0.527948081f, 0.0738843009f, -0.262186676f, -0.0511900224f, "
     "0.16163367f, 0.0874895155f, -0.0801983848f, -0.080956839f",
     "0.74441607543593813, -1.131123632107558, 1.2616998795518102, -0.92840742971264945, "
     "0.27852532163270727, 0.2072390054384658, -0.20410246708214724, -0.056961657733222197, "
     "0.12202421732637037, 0.03432101789719353, -0.077398663115482616, -0.038479706177859653, "
     "0.04713057403771282, 0.046300761367907221, -0.019080622049272276, -0.048468999867261345, "
     "-0.0094387370437256524, 0.038567976774195489, 0.032724395142039613, -0.015636920100248849, "
     "-0.038709306789963628, -0.0086076471916022232, 0.021243938986760622, 0.013168676649531056"},
    // (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4
    {"$SIN_Q", "-0.166666672f, 0.00833333191f, -0.00019840039f, 2.72437819e-06f",
     "-0.16666666666666666, 0.0083333333333333315, -0.00019841269841264567, 2.7557319218954762e-06, "
     "-2.505210610025599e-08, 1.6058510875319195e-10, -7.5854864852359384e-13"},
    {"$COS_Q", "0.0416666679f, -0.00138888881f, 2.48005599e-05f, -2.72958317e-07f",
     "0.041666666666666664, -0.0013888888888888887, 2.4801587301584367e-05, -2.7557319221189102e-07, "
     "2.0876755717584403e-09, -1.1470449354466773e-11, 4.745198807202876e-14"},
};

// $P(x, a, b, c): a + x * (b + x * c).
std::string horner(std::string_view x, const std::vector<std::string>& c) {
  std::string out = "($F@)" + c.back();
  for (size_t i = c.size() - 1; i-- > 0;)
    out = "sd_fma(" + out + ", " + std::string(x) + ", ($F@)" + c[i] + ")";
  return out;
}

// f32 functions that are rare and therefore computed in f64.
constexpr std::string_view kThroughF64[] = {"atan", "asin", "acos", "asinh", "acosh", "atanh", "atan2"};

// The arguments of the call whose parenthesis opens before `at`, split at top-level commas; `end` is one past
// the closing parenthesis.
std::vector<std::string> arguments(const std::string& text, size_t at, size_t* end) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' && depth++ == 0) continue;
    if (c == ')' && --depth == 0) break;
    if (c == ',' && depth == 1)
      out.emplace_back();
    else if (c != ' ' || !out.back().empty())
      out.back() += c;
  }
  *end = at + 1;
  return out;
}

// The names of a list separated by spaces; those without a type get `type`.
std::vector<std::string> typed(std::string_view names, std::string_view type) {
  std::vector<std::string> out;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    const std::string name(names.substr(0, end));
    out.push_back(name.find('.') == std::string::npos ? name + "." + std::string(type) : name);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return out;
}

MathText instance_of(const MathFunction& f, std::string_view type, int width) {
  const bool single = type == "f32";
  MathText out{typed(f.needs, type), std::string(f.text.substr(1))};
  out.text = replaced(
      std::move(out.text), "$SLOW",
      width == 1
          ? "if (__builtin_expect(!(__builtin_elementwise_abs(x) < 0x1p20), 0)) r = sd_big_trig(x, &k);"
          : "if (__builtin_expect(__builtin_reduce_or((i64@)(~(__builtin_elementwise_abs(x) < 0x1p20))) != "
            "0, 0))\n"
            "    for (int l = 0; l < `; ++l)\n"
            "      if (!(__builtin_elementwise_abs(x[l]) < 0x1p20)) { i64 q; r[l] = sd_big_trig(x[l], &q); "
            "k[l] = q; }");
  for (size_t pass = 0; pass < 2; ++pass)
    for (const Constant& c : kConstants)
      for (size_t at = out.text.find(c.name); at != std::string::npos; at = out.text.find(c.name, at + 1)) {
        const size_t after = at + c.name.size();
        if (after < out.text.size() &&
            (std::isalnum(static_cast<unsigned char>(out.text[after])) || out.text[after] == '_'))
          continue;
        out.text.replace(at, c.name.size(), single ? c.f32 : c.f64);
      }
  for (size_t at = out.text.find("$P("); at != std::string::npos; at = out.text.find("$P(", at)) {
    size_t end;
    std::vector<std::string> args = arguments(out.text, at + 2, &end);
    const std::string x = args[0];
    args.erase(args.begin());
    out.text.replace(at, end - at, horner(x, args));
  }
  for (size_t at = out.text.find("$C("); at != std::string::npos; at = out.text.find("$C(", at)) {
    size_t end;
    const std::vector<std::string> args = arguments(out.text, at + 2, &end);
    out.text.replace(at, end - at,
                     width == 1 ? "(" + args[1] + ")(" + args[0] + ")"
                                : "__builtin_convertvector(" + args[0] + ", " + args[1] + ")");
  }
  out.text = replaced(std::move(out.text), "$F", type);
  out.text = replaced(std::move(out.text), "$I", single ? "i32" : "i64");
  out.text = replaced(std::move(out.text), "$U", single ? "u32" : "u64");
  out.text = replaced(std::move(out.text), "$x", single ? "f" : "");
  return out;
}

}  // namespace

std::optional<MathText> math_text(std::string_view op, std::string_view type, int width) {
  if (type == "f32" &&
      std::find(std::begin(kThroughF64), std::end(kThroughF64), op) != std::end(kThroughF64)) {
    const std::string name(op);
    const bool two = op == "atan2";
    return MathText{{"wide.f32", name + ".f64"},
                    "static inline f32@ sd_" + name + (two ? "(f32@ a, f32@ b)" : "(f32@ a)") +
                        " { return sd_thin(sd_" + name +
                        (two ? "(sd_wide(a), sd_wide(b)));" : "(sd_wide(a)));") + " }\n"};
  }
  for (const auto functions : {exponential_functions(), trigonometric_functions()})
    for (const MathFunction& f : functions)
      if (f.name == op && (f.type.empty() || f.type == type)) return instance_of(f, type, width);
  return std::nullopt;
}

}  // namespace stridec::codegen
