// Attention as one nest, as text: the result of the pass `gpu chains`, with variants of what is between the
// GEMMs.
#pragma once

#include <string>

#include "compiler/base/text.h"

namespace stridec::test {

struct FlashCase {
  std::string dtype = "f16";
  int depth = 64, width = 64;
  // The bias that is added to the scores; "" for none. Masked scores get the value in parentheses.
  //   "load"               m
  //   "causal"             (-inf) where key > row + past
  //   "both"               m + "causal"
  //   "lowest"             (-65504) where key > row + past
  //   "late"               (-65504) where key >= row + past: the first row may have no key
  //   "after"              (-inf) where key < row
  //   "own"                (-65504) unless causal and t[key] is that of the row: its own sequence
  //   "other"              (-65504) unless causal and t[key] is that of the previous row
  //   "length"             (-inf) where key >= n[batch]
  //   "low length"         (-65504) where key >= n[batch]
  //   "length and causal"  (-inf) unless causal and key < n[batch]
  //   "row length"         (-inf) where key > n[batch] + row
  //   "padded"             (-65504) unless causal and t[key] != 0
  //   "padded rows"        (-65504) unless causal and t[key - row] != 0 (or key < row)
  std::string bias;
  int group = 1;        // query heads per KV head
  bool guard = false;   // isnan(p) ? 0 : p
  bool fixed = false;   // where c[row] == 0, p is c[row]
  bool hidden = false;  // where c[row] == 0, p is 0
  std::string exp_dtype = "f32";
  bool transposed = false;  // keys are stored as [depth, keys]
  bool single = false;      // only the first row, without a dim for rows
  bool rounded = false;     // scaled scores are rounded to the dtype, as in ONNX's Attention
  bool zeros = false;       // a mask of zeros is added as well
};

inline std::string flash_text(const FlashCase& c) {
  const std::string& d = c.dtype;
  const bool padded = c.bias.starts_with("padded");
  const bool sequences = c.bias == "own" || c.bias == "other" || padded;
  const bool lengths = c.bias.find("length") != std::string::npos;
  std::string text =
      cat("program p\n  symbol b = input 0 dim 0 in 0..\n  symbol s = input 0 dim 2 in 0..65536\n"
          "  symbol past = input 3 dim 3 in 0..65536\n  input q ",
          d, " [b, 8, s, ", c.depth, "] ordinal 0\n  input k ", d, " [b, ", 8 / c.group, ", ",
          c.transposed ? cat(c.depth, ", past + s") : cat("past + s, ", c.depth), "] ordinal 1\n  input v ",
          d, " [b, ", 8 / c.group, ", past + s, ", c.width, "] ordinal 2\n  input m ", d,
          " [b, 1, s, past] ordinal 3\n  input c ", d, " [s] ordinal 4\n",
          sequences ? "  input t i64 [past + s] ordinal 5\n"
          : lengths ? "  input n i64 [b] ordinal 5\n"
                    : "",
          "  output o ", d, " [b, 8, s, ", c.width, "] ordinal 0\n  local x f32 [past + s]\n  local y ", d,
          " [past + s]\n  inputs (q, k, v, m, c",
          sequences ? ", t"
          : lengths ? ", n"
                    : "",
          ")\n  outputs (o)\n  steps\n"
          "    nest 0 attention (%i0<b, %i1<8, %i2<s)\n"
          "      %0 : f32 = constant 0\n      %1 : f32 = constant ",
          c.bias == "lowest" || c.bias == "late" || c.bias == "low length" || sequences ? "-65504" : "-inf",
          "\n      %2 : f32 = constant 0.125\n      %3 : ", d, " = constant 0\n");
  const std::string head = c.group > 1 ? cat("%i1//", c.group) : "%i1";
  const std::string sum = c.zeros ? "%18" : "%11";
  text +=
      cat("      for (%i3<past + s)\n        %10 : f32 = reduce sum (%i4<", c.depth, ")\n          %4 : ", d,
          " = load q[%i0, %i1, %i2, %i4]\n          %5 : f32 = cast %4\n          %6 : ", d,
          " = load k[%i0, ", head, c.transposed ? ", %i4, %i3" : ", %i3, %i4",
          "]\n          %7 : f32 = cast %6\n          %8 : f32 = mul %5 %7\n          yield %8\n",
          c.rounded ? cat("        %16 : f32 = mul %10 %2\n        %17 : ", d,
                          " = cast_sat %16\n        %11 : f32 = cast %17\n")
                    : "        %11 : f32 = mul %10 %2\n",
          c.zeros ? "        %18 : f32 = add %11 %0\n" : "");
  if (c.bias == "load" || c.bias == "both")
    text +=
        cat("        %12 : ", d, " = load m[%i0, 0, %i2, %i3] if %i3 < past else 0\n",
            c.bias == "load" ? "        %13 : f32 = cast %12\n"
                             : "        %50 : f32 = cast %12\n        %51 : bool = index %i3 <= %i2 + past\n"
                               "        %52 : f32 = select %51 %0 %1\n        %13 : f32 = add %50 %52\n");
  else if (padded)
    text += cat("        %12 : bool = index %i3 <= %i2 + past\n        %50 : i64 = load t[%i3",
                c.bias == "padded rows" ? " - %i2] if %i2 <= %i3 else 1" : "]",
                "\n        %51 : i64 = constant 0\n        %52 : bool = ne %50 %51\n"
                "        %53 : bool = and %12 %52\n        %13 : f32 = select %53 %0 %1\n");
  else if (lengths)
    text += cat("        %50 : i64 = load n[%i0]\n        %51 : i64 = index %i3\n",
                c.bias == "row length" ? "        %54 : i64 = index %i2\n        %55 : i64 = add %50 %54\n   "
                                         "     %52 : bool = lt %55 %51\n"
                                         "        %13 : f32 = select %52 %1 %0\n"
                : c.bias == "length and causal"
                    ? "        %52 : bool = lt %51 %50\n        %53 : bool = index %i3 <= %i2 + past\n"
                      "        %54 : bool = and %52 %53\n        %13 : f32 = select %54 %0 %1\n"
                    : "        %52 : bool = lt %51 %50\n        %13 : f32 = select %52 %0 %1\n");
  else if (sequences)
    text += cat("        %12 : bool = index %i3 <= %i2 + past\n        %50 : i64 = load t[%i2 + past",
                c.bias == "other" ? " - 1] if 1 <= %i2 else 0" : "]",
                "\n        %51 : i64 = load t[%i3]\n        %52 : bool = eq %50 %51\n"
                "        %53 : bool = and %12 %52\n        %13 : f32 = select %53 %0 %1\n");
  else if (!c.bias.empty())
    text += cat("        %12 : bool = index ",
                c.bias == "after"  ? "%i2 <= %i3"
                : c.bias == "late" ? "%i3 < %i2 + past"
                                   : "%i3 <= %i2 + past",
                "\n        %13 : f32 = select %12 %0 %1\n");
  text += c.bias.empty() ? cat("        store x[%i3] ", sum, "\n")
                         : cat("        %14 : f32 = add ", sum, " %13\n        store x[%i3] %14\n");
  text +=
      "      %20 : f32 = reduce max (%i5<past + s)\n        %21 : f32 = load x[%i5]\n        yield %21\n"
      "      for (%i6<past + s)\n        %22 : f32 = load x[%i6]\n        %23 : f32 = sub %22 %20\n";
  if (c.exp_dtype == "f32")
    text += "        %24 : f32 = exp %23\n        store x[%i6] %24\n";
  else
    text += cat("        %28 : f32 = exp %23\n        %29 : ", c.exp_dtype,
                " = cast %28\n        %24 : f32 = cast %29\n        store x[%i6] %24\n");
  text +=
      cat("      %25 : f32 = reduce sum (%i7<past + s)\n        %26 : f32 = load x[%i7]\n        yield %26\n"
          "      %30 : ",
          d,
          " = load c[%i2]\n      %31 : bool = eq %30 %3\n      for (%i8<past + s)\n"
          "        %32 : f32 = load x[%i8]\n        %33 : f32 = div %32 %25\n        %34 : ",
          d, " = cast_sat %33\n");
  std::string p = "%34";
  if (c.guard) {
    text += cat("        %35 : bool = isnan %34\n        %36 : ", d, " = select %35 %3 %34\n");
    p = "%36";
  }
  if (c.fixed || c.hidden) {
    text += cat("        %37 : ", d, " = select %31 ", c.hidden ? "%3" : "%30", " ", p, "\n");
    p = "%37";
  }
  text += cat("        store y[%i8] ", p, "\n      for (%i9<", c.width,
              ")\n        %40 : f32 = reduce sum (%i10<past + s)\n          %41 : ", d,
              " = load y[%i10]\n          %42 : f32 = cast %41\n          %43 : ", d, " = load v[%i0, ", head,
              ", %i10, %i9]\n          %44 : f32 = cast %43\n          %45 : f32 = mul %42 %44\n"
              "          yield %45\n        %46 : ",
              d, " = cast %40\n        store o[%i0, %i1, %i2, %i9] %46\n");
  if (!c.single) return text;
  text.erase(text.find(", %i2<s"), 7);
  return replaced(text, "%i2", "0");
}

}  // namespace stridec::test
