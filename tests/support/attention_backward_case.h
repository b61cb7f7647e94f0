// A forward and a backward pass of attention, as nests that fusion has left apart.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compiler/base/text.h"

namespace stridec::test {

struct AttentionBackwardCase {
  bool causal = false;
  bool other_mask = false;                // the gradient is 0 elsewhere than where the mask hides keys
  bool changes = false;                   // q changes between the passes
  bool safe = false;                      // PyTorch's softmax, in which rows that see no key are 0
  const char* extra = "";                 // more steps
  const char* outputs = "o, dq, dk, dv";  // or x, which `extra` stores, as well
  bool additive = false;                  // a mask in memory is added to the scores
  bool hidden = false;                    // a mask in memory hides keys, and their gradients are set to 0
  bool gathered = false;                  // the hiding mask's keys are taken in an order in memory
  bool capped = false;                    // the scores' tanh, of which the gradient reads the scores
  bool single = false;                    // a batch of 1, which is no dim of the nests
  const char* dtype = "bf16";             // of the factors
  std::string rows = "70", keys = "70", depth = "64";
  const char* ahead = "0";  // keys that row 0 sees after the first
  const char* symbols = "";
};

// 2 x 2 heads, or 2.
inline std::string attention_backward_text(const AttentionBackwardCase& c) {
  std::string scores =
      "      %0 : f32 = reduce sum (%d<DEPTH)\n        %1 : FACTOR = load q[%b, %h, %m, %d]\n        %2 : "
      "f32 "
      "= cast %1\n        %3 : FACTOR = load k[%b, %h, %n, %d]\n        %4 : f32 = cast %3\n        %5 : "
      "f32 = mul %2 %4\n        yield %5\n      %6 : f32 = constant 0.125\n      %7 : f32 = mul %0 %6\n";
  if (c.causal)
    scores +=
        "      %8 : bool = index %n <= %m + AHEAD\n      %9 : f32 = constant -inf\n      %10 : f32 = select "
        "%8 %7 "
        "%9\n";
  if (c.additive)
    scores +=
        "      %8 : f32 = load mask[%m, %n]\n      %9 : f32 = add %7 %8\n      store s[%b, %h, %m, %n] %9\n";
  else if (c.capped)
    scores += "      %8 : f32 = tanh %7\n      store s[%b, %h, %m, %n] %8\n";
  else if (c.hidden)
    scores +=
        "      %8 : f32 = load MASK[%m, %n]\n      %9 : f32 = constant 0\n      %10 : bool = lt %9 %8\n      "
        "%11 : f32 = "
        "constant -inf\n      %12 : f32 = select %10 %7 %11\n      store s[%b, %h, %m, %n] %12\n";
  else
    scores += cat("      store s[%b, %h, %m, %n] %", c.causal ? 10 : 7, "\n");
  std::string text = cat(
      "program attention\n", c.symbols, R"(  input q0 FACTOR [2, 2, ROWS, DEPTH] ordinal 0
  input k FACTOR [2, 2, KEYS, DEPTH] ordinal 1
  input v FACTOR [2, 2, KEYS, DEPTH] ordinal 2
  input g0 f32 [2, 2, ROWS, DEPTH] ordinal 3
  input mask f32 [ROWS, KEYS] ordinal 4
  output o FACTOR [2, 2, ROWS, DEPTH] ordinal 0
  output dq f32 [2, 2, ROWS, DEPTH] ordinal 1
  output dk f32 [2, 2, KEYS, DEPTH] ordinal 2
  output dv f32 [2, 2, KEYS, DEPTH] ordinal 3
)",
      std::string(c.outputs).ends_with("x") ? "  output x f32 [2, 2, ROWS, KEYS] ordinal 4\n" : "",
      c.gathered ? "  arena picked f32 [ROWS, KEYS]\n" : "",
      R"(  arena s f32 [2, 2, ROWS, KEYS]
  arena p f32 [2, 2, ROWS, KEYS]
  arena p16 FACTOR [2, 2, ROWS, KEYS]
  arena dp f32 [2, 2, ROWS, KEYS]
  arena pdp f32 [2, 2, ROWS, KEYS]
  arena sum f32 [2, 2, ROWS]
  arena ds FACTOR [2, 2, ROWS, KEYS]
  arena g FACTOR [2, 2, ROWS, DEPTH]
  arena q FACTOR [2, 2, ROWS, DEPTH]
  local e f32 [KEYS]
  inputs (q0, k, v, g0, mask)
  outputs ()",
      c.outputs, R"()
  steps
    nest 10 queries (%b<2, %h<2, %m<ROWS, %d<DEPTH)
      %0 : FACTOR = load q0[%b, %h, %m, %d]
      store q[%b, %h, %m, %d] %0
)",
      c.gathered
          ? "    nest 11 gather (%m<ROWS, %n<KEYS)\n      %0 : i64 = index %n\n      bind %g < KEYS = %0 "
            "error \"index {0} of {1}\"\n      %1 : f32 = load mask[%m, %g]\n"
            "      store picked[%m, %n] %1\n"
          : "",
      "    nest 0 scores (%b<2, %h<2, %m<ROWS, %n<KEYS)\n", scores,
      R"(    nest 1 softmax (%b<2, %h<2, %m<ROWS)
      %0 : f32 = reduce max (%n<KEYS)
        %1 : f32 = load s[%b, %h, %m, %n]
        yield %1
)",
      c.safe ? "      %20 : f32 = constant -3.4028234663852886e+38\n      %21 : f32 = max %0 %20\n" : "",
      R"(      for (%i<KEYS)
        %2 : f32 = load s[%b, %h, %m, %i]
        %3 : f32 = sub %2 %)",
      c.safe ? 21 : 0, R"(
        %4 : f32 = exp %3
        store e[%i] %4
      %5 : f32 = reduce sum (%j<KEYS)
        %6 : f32 = load e[%j]
        yield %6
)",
      c.safe ? "      %22 : f32 = constant 1.1754943508222875e-38\n      %23 : f32 = max %5 %22\n" : "",
      R"(      for (%l<KEYS)
        %7 : f32 = load e[%l]
        %8 : f32 = div %7 %)",
      c.safe ? 23 : 5, R"(
        store p[%b, %h, %m, %l] %8
        %9 : FACTOR = cast %8
        store p16[%b, %h, %m, %l] %9
    nest 2 values (%b<2, %h<2, %m<ROWS, %d<DEPTH)
      %0 : f32 = reduce sum (%n<KEYS)
        %1 : FACTOR = load p16[%b, %h, %m, %n]
        %2 : f32 = cast %1
        %3 : FACTOR = load v[%b, %h, %n, %d]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : FACTOR = cast %0
      store o[%b, %h, %m, %d] %6
)",
      c.changes ? R"(    nest 11 change (%b<2, %h<2, %m<ROWS, %d<DEPTH)
      %0 : FACTOR = load k[%b, %h, %m, %d]
      store q[%b, %h, %m, %d] %0
)"
                : "",
      R"(    nest 9 gradient (%b<2, %h<2, %m<ROWS, %d<DEPTH)
      %0 : f32 = load g0[%b, %h, %m, %d]
      %1 : FACTOR = cast %0
      store g[%b, %h, %m, %d] %1
    nest 3 value_gradient (%b<2, %h<2, %n<KEYS, %d<DEPTH)
      %0 : f32 = reduce sum (%m<ROWS)
        %1 : FACTOR = load p16[%b, %h, %m, %n]
        %2 : f32 = cast %1
        %3 : FACTOR = load g[%b, %h, %m, %d]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      store dv[%b, %h, %n, %d] %0
    nest 4 weight_gradient (%b<2, %h<2, %m<ROWS, %n<KEYS)
      %0 : f32 = reduce sum (%d<DEPTH)
        %1 : FACTOR = load g[%b, %h, %m, %d]
        %2 : f32 = cast %1
        %3 : FACTOR = load v[%b, %h, %n, %d]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      store dp[%b, %h, %m, %n] %0
      %6 : f32 = load p[%b, %h, %m, %n]
      %7 : f32 = mul %0 %6
      store pdp[%b, %h, %m, %n] %7
    nest 5 row_sum (%b<2, %h<2, %m<ROWS)
      %0 : f32 = reduce sum (%n<KEYS)
        %1 : f32 = load pdp[%b, %h, %m, %n]
        yield %1
      store sum[%b, %h, %m] %0
    nest 6 score_gradient (%b<2, %h<2, %m<ROWS, %n<KEYS)
      %0 : f32 = load p[%b, %h, %m, %n]
      %1 : f32 = load dp[%b, %h, %m, %n]
      %2 : f32 = load sum[%b, %h, %m]
      %3 : f32 = sub %1 %2
      %4 : f32 = mul %0 %3
)",
      c.causal || c.other_mask ? cat("      %8 : bool = index %n <= %m + AHEAD", c.other_mask ? " + 1" : "",
                                     "\n      %9 : f32 = constant 0\n      %10 : f32 = select %8 %4 %9\n")
      : c.capped ? "      %8 : f32 = load s[%b, %h, %m, %n]\n      %9 : f32 = mul %8 %8\n      %11 : f32 = "
                   "constant 1\n"
                   "      %12 : f32 = sub %11 %9\n      %10 : f32 = mul %4 %12\n"
      : c.hidden
          ? "      %11 : f32 = load MASK[%m, %n]\n      %9 : f32 = constant 0\n      %8 : bool = lt %9 %11\n"
            "      %10 : f32 = select %8 %4 %9\n"
          : "",
      cat("      %5 : f32 = constant 0.125\n      %6 : f32 = mul %",
          c.causal || c.other_mask || c.hidden || c.capped ? 10 : 4, " %5\n"),
      R"(      %7 : FACTOR = cast %6
      store ds[%b, %h, %m, %n] %7
    nest 7 key_gradient (%b<2, %h<2, %n<KEYS, %d<DEPTH)
      %0 : f32 = reduce sum (%m<ROWS)
        %1 : FACTOR = load ds[%b, %h, %m, %n]
        %2 : f32 = cast %1
        %3 : FACTOR = load q[%b, %h, %m, %d]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      store dk[%b, %h, %n, %d] %0
    nest 8 query_gradient (%b<2, %h<2, %m<ROWS, %d<DEPTH)
      %0 : f32 = reduce sum (%n<KEYS)
        %1 : FACTOR = load ds[%b, %h, %m, %n]
        %2 : f32 = cast %1
        %3 : FACTOR = load k[%b, %h, %n, %d]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      store dq[%b, %h, %m, %d] %0
)",
      c.extra);
  std::vector<std::pair<const char*, std::string>> values = {{"MASK", c.gathered ? "picked" : "mask"},
                                                             {"ROWS", c.rows},
                                                             {"KEYS", c.keys},
                                                             {"DEPTH", c.depth},
                                                             {"FACTOR", c.dtype},
                                                             {"AHEAD", c.ahead}};
  if (c.single) values.insert(values.end(), {{"[2, 2, ", "[1, 2, "}, {"%b<2, ", ""}, {"[%b, ", "[0, "}});
  for (const auto& [name, value] : values)
    for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, std::strlen(name), value);
  return text;
}

}  // namespace stridec::test
