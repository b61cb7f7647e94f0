// Programs of one contraction each, as text: matrix products and convolutions with what may follow them.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/text.h"

namespace stridec::test {

struct MatrixCase {
  std::string name, text;
};

inline bool is_half(const std::string& dtype) { return dtype == "f16" || dtype == "bf16"; }

// What a product's sums go through.
enum class Behind { kNothing, kGelu, kGeluAndResidual };

// y[m, n] = gelu(x w + bias) + r; `transposed`: w is [n, k]. Sizes are numbers or the symbols m, n, k. `batch`: "" or
// a size.
inline MatrixCase matmul_case(const std::string& dtype, const std::string& m, const std::string& n,
                              const std::string& k, bool transposed, const std::string& batch = "",
                              Behind behind = Behind::kGeluAndResidual) {
  const bool epilogue = behind != Behind::kNothing, residual = behind == Behind::kGeluAndResidual;
  std::string symbols;
  auto add = [&](const std::string& size, int input, int dim) {
    if (!size.empty() && !isdigit(size[0]))
      symbols += cat("  symbol ", size, " = input ", input, " dim ", dim, " in 1..65536\n");
  };
  const bool batched = !batch.empty();
  const int first = batched ? 1 : 0;
  add(batch, 0, 0);
  add(m, 0, first);
  add(n, 1, first + (transposed ? 0 : 1));
  add(k, 0, first + 1);
  const std::string b = batched ? batch + ", " : "", ib = batched ? "%b, " : "",
                    db = batched ? cat("%b<", batch, ", ") : "";
  std::string text =
      cat("program p\n", symbols, "  input x ", dtype, " [", b, m, ", ", k, "] ordinal 0\n  input w ", dtype,
          " [", b, transposed ? cat(n, ", ", k) : cat(k, ", ", n), "] ordinal 1\n");
  if (epilogue) text += cat("  input c ", dtype, " [", n, "] ordinal 2\n");
  if (residual) text += cat("  input r ", dtype, " [", b, m, ", ", n, "] ordinal 3\n");
  text += cat("  output y ", dtype, " [", b, m, ", ", n, "] ordinal 0\n  inputs (x, w", epilogue ? ", c" : "",
              residual ? ", r" : "", ")\n  outputs (y)\n  steps\n    nest 0 matmul (", db, "%m<", m, ", %n<",
              n, ")\n", "      %0 : ", dtype == "f64" ? "f64" : "f32", " = reduce sum (%k<", k, ")\n");
  const std::string type = dtype == "f64" ? "f64" : "f32";
  const std::string w = transposed ? "%n, %k" : "%k, %n";
  if (is_half(dtype)) {
    text += cat("        %1 : ", dtype, " = load x[", ib,
                "%m, %k]\n        %2 : f32 = cast %1\n        %3 : ", dtype, " = load w[", ib, w,
                "]\n        %4 : f32 = cast %3\n        %5 : f32 = mul %2 %4\n        yield %5\n");
  } else {
    text += cat("        %1 : ", type, " = load x[", ib, "%m, %k]\n        %3 : ", type, " = load w[", ib, w,
                "]\n        %5 : ", type, " = mul %1 %3\n        yield %5\n");
  }
  auto cast = [&](const std::string& to, const std::string& from, const std::string& type) {
    text += cat("      ", to, " : ", type, " = cast ", from, "\n");
  };
  if (!epilogue) {
    if (is_half(dtype)) {
      cast("%6", "%0", dtype);
      text += cat("      store y[", ib, "%m, %n] %6\n");
    } else {
      text += cat("      store y[", ib, "%m, %n] %0\n");
    }
    return {cat("matmul_", dtype, transposed ? "_t" : "", batched ? "_b" : ""), text};
  }
  text += cat("      %6 : ", dtype, " = load c[%n]\n");
  if (is_half(dtype)) cast("%7", "%6", "f32");
  const std::string bias = is_half(dtype) ? "%7" : "%6";
  text += cat("      %8 : ", type, " = add %0 ", bias, "\n");
  text += cat("      %9 : ", type, " = constant 0.70710678118654752\n      %10 : ", type,
              " = mul %8 %9\n      %11 : ", type, " = erf %10\n      %12 : ", type,
              " = constant 1\n      %13 : ", type, " = add %11 %12\n      %14 : ", type,
              " = constant 0.5\n      %15 : ", type, " = mul %8 %14\n      %16 : ", type, " = mul %15 %13\n");
  std::string result = "%16";
  if (residual) {
    text += cat("      %17 : ", dtype, " = load r[", ib, "%m, %n]\n");
    if (is_half(dtype)) cast("%18", "%17", "f32");
    text += cat("      %19 : ", type, " = add %16 ", is_half(dtype) ? "%18" : "%17", "\n");
    result = "%19";
  }
  if (is_half(dtype)) cast("%20", result, dtype);
  text += cat("      store y[", ib, "%m, %n] ", is_half(dtype) ? "%20" : result, "\n");
  return {cat("matmul_", dtype, transposed ? "_t" : "", batched ? "_b" : "", "_gelu", residual ? "_r" : ""),
          text};
}

struct Conv {
  std::string name, batch;
  int height, width, in, out, kernel, stride, dilation, pad, groups;
  bool channels_last, relu;
};

// y = conv(x, w) (+ relu), the sizes of a square window; weights [out, r, s, in / groups] or [out, in / groups, r, s].
inline MatrixCase convolution_case(const std::string& dtype, const Conv& c) {
  const int oh = (c.height + 2 * c.pad - c.dilation * (c.kernel - 1) - 1) / c.stride + 1,
            ow = (c.width + 2 * c.pad - c.dilation * (c.kernel - 1) - 1) / c.stride + 1;
  const int gi = c.in / c.groups, go = c.out / c.groups;
  auto image = [&](const std::string& n, const auto& ch, const auto& y, const auto& x) {
    return c.channels_last ? cat("[", n, ", ", y, ", ", x, ", ", ch, "]")
                           : cat("[", n, ", ", ch, ", ", y, ", ", x, "]");
  };
  std::string text = "program p\n";
  if (!isdigit(c.batch[0])) text += cat("  symbol ", c.batch, " = input 0 dim 0 in 1..1024\n");
  text += cat("  input x ", dtype, " ", image(c.batch, c.in, c.height, c.width), " ordinal 0\n");
  text += cat("  input w ", dtype, " ",
              c.channels_last ? cat("[", c.out, ", ", c.kernel, ", ", c.kernel, ", ", gi, "]")
                              : cat("[", c.out, ", ", gi, ", ", c.kernel, ", ", c.kernel, "]"),
              " ordinal 1\n");
  text += cat("  output y ", dtype, " ", image(c.batch, c.out, oh, ow),
              " ordinal 0\n  inputs (x, w)\n  outputs (y)\n  steps\n");
  const bool half = is_half(dtype);
  const bool grouped = c.groups > 1;
  text += cat("    nest 0 conv (%b<", c.batch, grouped ? cat(", %g<", c.groups) : "", ", %o<", go, ", %y<",
              oh, ", %x<", ow, ")\n      %0 : f32 = reduce sum (%c<", gi, ", %r<", c.kernel, ", %s<",
              c.kernel, ")\n");
  const std::string iy = cat("%y * ", c.stride, " + %r * ", c.dilation, " + ", -c.pad),
                    ix = cat("%x * ", c.stride, " + %s * ", c.dilation, " + ", -c.pad);
  const std::string ci = grouped ? cat("%g * ", gi, " + %c") : "%c",
                    co = grouped ? cat("%g * ", go, " + %o") : "%o";
  const std::string mask = c.pad ? cat(" if 0 <= ", iy, " && ", iy, " < ", c.height, " && 0 <= ", ix, " && ",
                                       ix, " < ", c.width, " else 0")
                                 : "";
  text += cat("        %1 : ", dtype, " = load x", image("%b", ci, iy, ix), mask, "\n");
  if (half) text += "        %2 : f32 = cast %1\n";
  text += cat("        %3 : ", dtype, " = load w",
              c.channels_last ? cat("[", co, ", %r, %s, %c]") : cat("[", co, ", %c, %r, %s]"), "\n");
  if (half) text += "        %4 : f32 = cast %3\n";
  text += cat("        %5 : f32 = mul ", half ? "%2 %4" : "%1 %3", "\n        yield %5\n");
  std::string value = "%0";
  if (c.relu) {
    text += "      %6 : f32 = constant 0\n      %7 : f32 = max %0 %6\n";
    value = "%7";
  }
  if (half) text += cat("      %8 : ", dtype, " = cast ", value, "\n");
  text += cat("      store y", image("%b", co, "%y", "%x"), " ", half ? "%8" : value, "\n");
  return {cat(c.name, "_", dtype), text};
}

inline std::vector<Conv> convolutions() {
  return {Conv{"conv3x3", "n", 14, 15, 64, 72, 3, 1, 1, 1, 1, true, true},
          Conv{"conv3x3s2", "2", 15, 14, 40, 48, 3, 2, 1, 1, 1, true, false},
          Conv{"conv3x3d2", "3", 12, 12, 16, 24, 3, 1, 2, 2, 1, true, true},
          Conv{"conv1x1", "n", 7, 9, 96, 40, 1, 1, 1, 0, 1, true, false},
          Conv{"conv_grouped", "2", 10, 10, 64, 96, 3, 1, 1, 1, 4, true, true},
          Conv{"conv_stem", "2", 33, 35, 3, 32, 7, 2, 1, 3, 1, true, true},
          Conv{"conv_first", "n", 13, 11, 20, 33, 3, 1, 1, 1, 1, false, true},
          Conv{"conv3x3s2_wide", "3", 15, 14, 64, 48, 3, 2, 1, 1, 1, true, false},
          Conv{"conv3x3d2_wide", "n", 12, 11, 128, 24, 3, 1, 2, 2, 1, true, true},
          Conv{"conv3x3_inner", "2", 10, 12, 64, 40, 3, 1, 1, 0, 1, true, true},
          Conv{"conv1x1s2", "n", 9, 8, 64, 72, 1, 2, 1, 0, 1, true, false},
          Conv{"conv5x5s3", "n", 11, 13, 64, 40, 5, 3, 1, 2, 1, true, false},
          Conv{"conv_grouped_wide", "2", 10, 9, 128, 96, 3, 1, 1, 1, 2, true, true}};
}

}  // namespace stridec::test
