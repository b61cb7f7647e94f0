// Matches the backward pass of attention for a kernel that never materialises a row of scores
// ("flash.backward").
//
// Types: f16 and bf16. The nest has the batch dims and keeps the weights and the gradients of scores of one
// batch point in local buffers; the kernel computes tiles of both and keeps none (Dao, "FlashAttention-2"):
//
//   nest (%b<batch, %h<heads)
//     for (%m<rows)
//       %L = load log_sum_exp[%b, %h, %m]
//       %delta = reduce sum (%d) of grad[%m, %d] * o[%m, %d]          the row's sum of weight * its gradient
//       for (%n<keys)
//         p[%m, %n] = exp(scale * (reduce sum (%d) of q[%m, %d] * k[%n, %d]) - %L), or 0 if the mask hides %n
//         s[%m, %n] = p * (reduce sum (%d) of grad[%m, %d] * v[%n, %d] - %delta)
//       for (%d)
//         dq[%m, %d] = f(reduce sum (%n) of s[%m, %n] * k[%n, %d])    f, g, h pointwise
//     for (%n<keys, %d)
//       dk[%n, %d] = g(reduce sum (%m) of s[%m, %n] * q[%m, %d])
//       dv[%n, %d] = h(reduce sum (%m) of p[%m, %n] * grad[%m, %d])
//
// The order of the loops keeps q and grad in use until the last result, so that no result may share memory
// with a factor that the kernel still reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/flash.h"

namespace stridec::kernels {

struct FlashBackward {
  // One of the three results: the sum and the statements of the loop around it, which store it.
  struct Result {
    loop::Dim line, column;  // the row or key, and the depth
    const loop::Reduce* sum = nullptr;
    std::vector<const loop::Stmt*> statements;  // that follow from the sum, stores included
  };
  std::vector<loop::Dim> batch;
  loop::Dim row, keys;
  DType dtype = DType::kBF16;     // of the factors, and of weights and gradients of scores
  int64_t depth = 0;              // of all five factors
  double scale = 1;               // of the scores, positive
  std::optional<sym::Expr> seen;  // row r sees the keys before r + seen; an expression of sizes
  Flash::Operand q, k, v, grad, o;
  DType o_dtype = DType::kBF16;
  const loop::Load* log_sum_exp = nullptr;
  Result dq, dk, dv;
};

// Holds pointers into the nest.
std::optional<FlashBackward> match_flash_backward(const loop::Program& program, const loop::Nest& nest,
                                                  std::string* reason = nullptr);

constexpr std::string_view kFlashBackward = "flash.backward";  // the schedule's kernel; it has no directives

// Whether TMA can copy tiles of q, k, v and grad, and 16 bytes of o at a time, whatever the sizes.
bool copies_in_tiles(const loop::Program& program, const FlashBackward& flash);

// If the condition is key < row + seen, in any arrangement: `seen`, an expression of sizes.
std::optional<sym::Expr> seen_keys(sym::Expr shown, sym::Expr row, sym::Expr key, const sym::Facts& facts);

// The operand that `load` reads: its offset is base + line * `line` + `depth`. Nothing if it has another
// form.
std::optional<Flash::Operand> flash_operand(const loop::Program& program, const loop::Load& load,
                                            sym::Expr line, sym::Expr depth, const sym::Facts& facts);

}  // namespace stridec::kernels
