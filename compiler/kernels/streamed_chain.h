// Matches chains (kernels/chain.h) that a kernel computes in one pass over blocks of columns, for tiles of
// rows ("chain.mma"):
//
//   nest (%b<batch, %m<rows)
//     for (%n<columns)                    a link that fills columns, from a row and a column
//       s[%n] = f(reduce sum (%d) of a[%m, %d] * b[%n, %d])
//     for (%n<columns)                    row statements, column by column
//       p[%n] = g(s[%n], ...)
//     for (%j<depth)                      a link that sums over columns
//       o[%m, %j] = h(reduce sum (%n) of p[%n] * b[%n, %j])
//
// There may be several of each kind. Every `b` that is summed is one that fills columns, so that a block of
// columns is loaded once. No statement combines columns apart from the sums. The two chains of attention's
// backward pass have this form (schedule/fusion/attention_nest.h).
//
// Types of factors: f16, bf16, tf32, and f32 as sums of two tf32 values (kernels/flash.h); sums are in f32.
//
// Text form:
//   tile ROWS COLUMNS    rows per thread block, 16 per warp, and columns per step
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/chain_range.h"
#include "compiler/kernels/flash.h"

namespace stridec::kernels {

struct StreamedChain {
  struct Fill {
    const Chain::Part* part;
    Flash::Operand row, column;  // by the chain's row and the part's column
    int64_t depth;
  };
  struct Sum {
    const Chain::Part* part;
    loop::BufferId weights;  // the local buffer that is summed
    size_t fill;             // whose `column` it multiplies
  };
  Chain chain;
  DType dtype = DType::kF16;  // of the factors and of summed local buffers
  sym::Expr columns;          // extent
  std::vector<Fill> fills;
  std::vector<const Chain::Part*> between;
  std::vector<Sum> sums;
  std::optional<ChainRange> range;
};

std::optional<StreamedChain> match_streamed_chain(const loop::Program& program, const loop::Nest& nest,
                                                  std::string* reason = nullptr);

struct StreamedChainPlan {
  int rows = 64, columns = 64;
};

constexpr std::string_view kStreamedChain = "chain.mma";
loop::Schedule to_schedule(const StreamedChainPlan& plan);
// Requires a schedule of kStreamedChain.
StreamedChainPlan to_streamed_chain_plan(const loop::Schedule& schedule);

// Bytes of dynamic shared memory per block, and 32-bit registers of a thread for the sums and a step's
// columns.
int64_t shared_bytes(const StreamedChainPlan& plan, const StreamedChain& chain);
int registers(const StreamedChainPlan& plan, const StreamedChain& chain);

}  // namespace stridec::kernels
