// Programs of one contraction each, as text: GEMMs and convolutions with different epilogues.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/text.h"

namespace stridec::test {

struct MatrixCase {
  std::string name, text;
};

inline bool is_half(const std::string& dtype) { return dtype == "f16" || dtype == "bf16"; }

// The dtypes of a case, parsed from its name: operands ("u8*i8" if they differ), accumulator, and the dtype
// of the other epilogue inputs and of the result.
struct Types {
  std::string a, b, sum, beside;

  explicit Types(const std::string& dtype) {
    const size_t times = dtype.find('*');
    a = dtype.substr(0, times);
    b = times == std::string::npos ? a : dtype.substr(times + 1);
    sum = dtype == "f64" ? "f64" : a == "u8" || a == "i8" ? "i32" : "f32";
    beside = is_half(dtype) || dtype == "f64" ? dtype : "f32";
  }
  // Loads a value, named `stored`, and casts it to the accumulator's dtype, named `result`.
  static std::string load(const std::string& result, const std::string& stored, const std::string& type,
                          const std::string& sum, const std::string& what) {
    if (type == sum) return cat("        ", result, " : ", type, " = load ", what, "\n");
    return cat("        ", stored, " : ", type, " = load ", what, "\n        ", result, " : ", sum,
               " = cast ", stored, "\n");
  }
};

// The epilogue of a GEMM. kQuantized: requantises 8-bit sums to u8 with one scale per column.
enum class Behind { kNothing, kGelu, kGeluAndResidual, kQuantized };

// y[m, n] = gelu(x w + bias) + r; `transposed`: w is [n, k]. Sizes are numbers or the symbols m, n, k.
// `batch`: "" or a size. `dtype`: in the form that Types parses.
inline MatrixCase matmul_case(const std::string& dtype, const std::string& m, const std::string& n,
                              const std::string& k, bool transposed, const std::string& batch = "",
                              Behind behind = Behind::kGeluAndResidual) {
  const Types types(dtype);
  const bool epilogue = behind != Behind::kNothing, residual = behind == Behind::kGeluAndResidual,
             quantized = behind == Behind::kQuantized;
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
  const std::string result = quantized ? "u8" : epilogue || types.sum != "i32" ? types.beside : "i32";
  std::string text =
      cat("program p\n", symbols, "  input x ", types.a, " [", b, m, ", ", k, "] ordinal 0\n  input w ",
          types.b, " [", b, transposed ? cat(n, ", ", k) : cat(k, ", ", n), "] ordinal 1\n");
  if (epilogue) text += cat("  input c ", types.beside, " [", n, "] ordinal 2\n");
  if (residual) text += cat("  input r ", types.beside, " [", b, m, ", ", n, "] ordinal 3\n");
  text += cat("  output y ", result, " [", b, m, ", ", n, "] ordinal 0\n  inputs (x, w",
              epilogue ? ", c" : "", residual ? ", r" : "", ")\n  outputs (y)\n  steps\n    nest 0 matmul (",
              db, "%m<", m, ", %n<", n, ")\n", "      %0 : ", types.sum, " = reduce sum (%k<", k, ")\n");
  const std::string w = transposed ? "%n, %k" : "%k, %n";
  text += Types::load("%2", "%1", types.a, types.sum, cat("x[", ib, "%m, %k]"));
  text += Types::load("%4", "%3", types.b, types.sum, cat("w[", ib, w, "]"));
  text += cat("        %5 : ", types.sum, " = mul %2 %4\n        yield %5\n");
  // Casts `from` from dtype `old` to `type`, naming the result `to`.
  auto cast = [&](const std::string& to, const std::string& from, const std::string& old,
                  const std::string& type) {
    if (old == type) return from;
    text += cat("      ", to, " : ", type, " = cast ", from, "\n");
    return to;
  };
  const std::string name = cat("matmul_", dtype, transposed ? "_t" : "", batched ? "_b" : "");
  if (!epilogue) {
    text += cat("      store y[", ib, "%m, %n] ", cast("%6", "%0", types.sum, result), "\n");
    return {name, text};
  }
  const std::string type = types.sum == "f64" ? "f64" : "f32";
  const std::string sum = cast("%21", "%0", types.sum, type);
  text += cat("      %6 : ", types.beside, " = load c[%n]\n");
  const std::string bias = cast("%7", "%6", types.beside, type);
  if (quantized) {
    text += cat("      %8 : f32 = mul ", sum, " ", bias,
                "\n      %9 : f32 = round %8\n      %10 : f32 = constant 3\n      %11 : f32 = add %9 %10\n"
                "      %12 : u8 = cast_sat %11\n      store y[",
                ib, "%m, %n] %12\n");
    return {name + "_quantized", text};
  }
  text += cat("      %8 : ", type, " = add ", sum, " ", bias, "\n");
  text += cat("      %9 : ", type, " = constant 0.70710678118654752\n      %10 : ", type,
              " = mul %8 %9\n      %11 : ", type, " = erf %10\n      %12 : ", type,
              " = constant 1\n      %13 : ", type, " = add %11 %12\n      %14 : ", type,
              " = constant 0.5\n      %15 : ", type, " = mul %8 %14\n      %16 : ", type, " = mul %15 %13\n");
  std::string last = "%16";
  if (residual) {
    text += cat("      %17 : ", types.beside, " = load r[", ib, "%m, %n]\n");
    const std::string r = cast("%18", "%17", types.beside, type);
    text += cat("      %19 : ", type, " = add %16 ", r, "\n");
    last = "%19";
  }
  text += cat("      store y[", ib, "%m, %n] ", cast("%20", last, type, result), "\n");
  return {cat(name, "_gelu", residual ? "_r" : ""), text};
}

// y[m, n] = silu(g) * (x w): a GEMM gated by the result of another one.
inline MatrixCase gated_case(const std::string& dtype, const std::string& m, const std::string& n,
                             const std::string& k) {
  return {
      cat("gated_", dtype),
      cat("program p\n  input x ", dtype, " [", m, ", ", k, "] ordinal 0\n  input w ", dtype, " [", k, ", ",
          n, "] ordinal 1\n  input g ", dtype, " [", m, ", ", n, "] ordinal 2\n  output y ", dtype, " [", m,
          ", ", n, "] ordinal 0\n  inputs (x, w, g)\n  outputs (y)\n  steps\n    nest 0 gated (%m<", m,
          ", %n<", n, ")\n      %0 : f32 = reduce sum (%k<", k, ")\n        %1 : ", dtype,
          " = load x[%m, %k]\n        %2 : f32 = cast %1\n        %3 : ", dtype,
          " = load w[%k, %n]\n        %4 : f32 = cast %3\n        %5 : f32 = mul %2 %4\n        yield %5\n   "
          "   %6 : ",
          dtype,
          " = load g[%m, %n]\n      %7 : f32 = cast %6\n      %8 : f32 = sigmoid %7\n      %9 : f32 = mul %7 "
          "%8\n"
          "      %10 : f32 = mul %9 %0\n      %11 : ",
          dtype, " = cast %10\n      store y[%m, %n] %11\n")};
}

// y[m, n] = silu(x w + c) * (x v), with w and v interleaved as in kernels/dual_gemm.h. `epilogue`: with the
// bias c and a residual r.
inline MatrixCase paired_case(const std::string& dtype, const std::string& m, const std::string& n,
                              const std::string& k, bool transposed, bool epilogue) {
  const Types types(dtype);
  const std::string type = types.sum == "f64" ? "f64" : "f32";
  std::string text = "program p\n";
  for (const auto& [size, dim] : {std::pair{m, 0}, std::pair{k, 1}})
    if (!isdigit(size[0])) text += cat("  symbol ", size, " = input 0 dim ", dim, " in 1..65536\n");
  const std::string both = cat(2 * std::stoi(n));
  text += cat("  input x ", types.a, " [", m, ", ", k, "] ordinal 0\n  input w ", types.b, " [",
              transposed ? cat(both, ", ", k) : cat(k, ", ", both), "] ordinal 1\n");
  if (epilogue)
    text += cat("  input c ", types.beside, " [", n, "] ordinal 2\n  input r ", types.beside, " [", m, ", ",
                n, "] ordinal 3\n");
  text +=
      cat("  output y ", types.beside, " [", m, ", ", n, "] ordinal 0\n  inputs (x, w",
          epilogue ? ", c, r" : "", ")\n  outputs (y)\n  steps\n    nest 0 gated (%m<", m, ", %n<", n, ")\n");
  int next = 0;
  const auto value = [&] { return cat("%", next++); };
  const auto emit = [&](const std::string& dtype_of, const std::string& what) {
    const std::string id = value();
    text += cat("      ", id, " : ", dtype_of, " = ", what, "\n");
    return id;
  };
  const auto as = [&](const std::string& to, const std::string& from, const std::string& id) {
    return to == from ? id : emit(to, cat("cast ", id));
  };
  const auto sum = [&](const std::string& var, const std::string& more) {
    const std::string id = value(), x = value(), wide_x = value(), w = value(), wide_w = value(),
                      product = value();
    const std::string at = cat("%n + 8*(%n//8)", more);
    text += cat("      ", id, " : ", types.sum, " = reduce sum (", var, "<", k, ")\n");
    text += Types::load(wide_x, x, types.a, types.sum, cat("x[%m, ", var, "]"));
    text += Types::load(wide_w, w, types.b, types.sum,
                        cat("w[", transposed ? cat(at, ", ", var) : cat(var, ", ", at), "]"));
    text += cat("        ", product, " : ", types.sum, " = mul ", wide_x, " ", wide_w, "\n        yield ",
                product, "\n");
    return as(type, types.sum, id);
  };
  std::string gate = sum("%k", "");
  if (epilogue)
    gate = emit(type, cat("add ", gate, " ", as(type, types.beside, emit(types.beside, "load c[%n]"))));
  const std::string up = sum("%l", " + 8"), open = emit(type, cat("sigmoid ", gate)),
                    act = emit(type, cat("mul ", gate, " ", open));
  std::string out = emit(type, cat("mul ", act, " ", up));
  if (epilogue)
    out = emit(type, cat("add ", out, " ", as(type, types.beside, emit(types.beside, "load r[%m, %n]"))));
  text += cat("      store y[%m, %n] ", as(types.beside, type, out), "\n");
  return {cat("paired_", dtype, transposed ? "_t" : "", epilogue ? "_epilogue" : ""), text};
}

struct Conv {
  std::string name, batch;
  int height, width, in, out, kernel, stride, dilation, pad, groups;
  bool channels_last, relu;
};

// y = conv(x, w) (+ relu) with a square window; weights [out, r, s, in / groups] or [out, in / groups, r, s].
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
  const Types types(dtype);
  text += cat("  input x ", types.a, " ", image(c.batch, c.in, c.height, c.width), " ordinal 0\n");
  text += cat("  input w ", types.b, " ",
              c.channels_last ? cat("[", c.out, ", ", c.kernel, ", ", c.kernel, ", ", gi, "]")
                              : cat("[", c.out, ", ", gi, ", ", c.kernel, ", ", c.kernel, "]"),
              " ordinal 1\n");
  const std::string result = types.sum == "i32" ? "i32" : types.beside;
  text += cat("  output y ", result, " ", image(c.batch, c.out, oh, ow),
              " ordinal 0\n  inputs (x, w)\n  outputs (y)\n  steps\n");
  const bool grouped = c.groups > 1;
  text += cat("    nest 0 conv (%b<", c.batch, grouped ? cat(", %g<", c.groups) : "", ", %o<", go, ", %y<",
              oh, ", %x<", ow, ")\n      %0 : ", types.sum, " = reduce sum (%c<", gi, ", %r<", c.kernel,
              ", %s<", c.kernel, ")\n");
  const std::string iy = cat("%y * ", c.stride, " + %r * ", c.dilation, " + ", -c.pad),
                    ix = cat("%x * ", c.stride, " + %s * ", c.dilation, " + ", -c.pad);
  const std::string ci = grouped ? cat("%g * ", gi, " + %c") : "%c",
                    co = grouped ? cat("%g * ", go, " + %o") : "%o";
  const std::string mask = c.pad ? cat(" if 0 <= ", iy, " && ", iy, " < ", c.height, " && 0 <= ", ix, " && ",
                                       ix, " < ", c.width, " else 0")
                                 : "";
  text += Types::load("%2", "%1", types.a, types.sum, cat("x", image("%b", ci, iy, ix), mask));
  text +=
      Types::load("%4", "%3", types.b, types.sum,
                  cat("w", c.channels_last ? cat("[", co, ", %r, %s, %c]") : cat("[", co, ", %c, %r, %s]")));
  text += cat("        %5 : ", types.sum, " = mul %2 %4\n        yield %5\n");
  std::string value = "%0";
  if (c.relu) {
    text += cat("      %6 : ", types.sum, " = constant 0\n      %7 : ", types.sum, " = max %0 %6\n");
    value = "%7";
  }
  if (result != types.sum) text += cat("      %8 : ", result, " = cast ", value, "\n");
  text += cat("      store y", image("%b", co, "%y", "%x"), " ", result != types.sum ? "%8" : value, "\n");
  return {cat(c.name, "_", dtype), text};
}

// `tile`, or the tile that gathers elements one by one if the convolution's input requires that.
inline std::string tile_of(const std::string& tile, const std::string& dtype, const Conv& c) {
  const std::string a = Types(dtype).a;
  const bool wide = a == "tf32" || a == "f32", half = a == "f16" || a == "bf16";
  if (c.channels_last && c.in / c.groups % (wide ? 4 : half ? 8 : 16) == 0) return tile;
  if (tile.starts_with("simt")) return "simt.64x64x16";
  return wide ? "mma.64x64x16.32bit" : half ? "mma.64x64x32" : "mma.64x64x32.8bit";
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
