// Chains: contractions fused row by row through a cached intermediate, with row statements between them
// (attention and similar nests).
//
//   nest (%b<batch, %h<heads, %m<queries)
//     for (%n<keys)                                       a link: s[%n] = q[%b, %h, %m, :] * k[%b, %h, %n, :]
//       %0 : f32 = reduce sum (%d<size) ...
//       store s[%n] %0
//     %1 : f32 = reduce max (%i<keys) ...                 row statements: the softmax of s, in place
//     for (%j<size)                                       a link: o[%b, %h, %m, %j] = s[:] * v[%b, %h, :, %j]
//       %2 : f32 = reduce sum (%n<keys) ...
//       store o[%b, %h, %m, %j] %2
//
// A link is a `for` at the top of the body that is a contraction whose dims are the nest's and its own. One
// factor depends on the for's dims (columns); the other, broadcast one does not. No link's column factor
// depends on the nest's row dim, so all rows of a block share it. All other statements run row by row.
//
// Text form, of kernel "chain":
//   rows %m           the nest's dim whose points are computed in blocks of rows
//   tile N BYTES      rows per block: at most N, and no more than fit BYTES of scratch
//   gemm %n K a       the link with the first column dim %n runs on micro-kernel K; a: its broadcast factor
//                     is read `direct` from the rows in scratch, or `pack`ed for the block
//   vectorize, accumulators      for loops in row statements, as in schedule/directives/schedule.h
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/gemm_plan.h"

namespace stridec::kernels {

// The factors of a link: the broadcast one and the one that depends on the columns.
struct LinkFactors {
  int rows = 0, columns = 1;  // indices into Contraction::factors
};

struct Chain {
  struct Link {
    std::vector<loop::Dim> columns;  // dims of the for
    Contraction contraction;         // points into the part's nest
    LinkFactors sides;
    const Factor& row_factor() const { return contraction.factors[sides.rows]; }
    const Factor& column_factor() const { return contraction.factors[sides.columns]; }
  };
  // Cannot be copied, because a copy's link would point into the original's nest.
  struct Part {
    loop::Nest nest;                   // its dims are the chain's and, for a link, also the for's
    std::unique_ptr<const Link> link;  // null for row statements
  };
  std::vector<loop::Dim> batch;  // dims of the nest except the row dim, in order
  loop::Dim row;
  std::vector<Part> parts;  // in order
};

// Returns nothing if the nest has no link; `reason` says why if it looks like a chain. If the column factor
// depends on all dims, no rows share it: with `single` such a nest matches too, and each point is one row of
// a dim that the nest does not have.
std::optional<Chain> match_chain(const loop::Nest& nest, std::string* reason = nullptr, bool single = false);

// The nest of a part as a link whose last dims are `columns`; null if it is none. After a change of a part's
// nest, its link has to be matched again.
std::unique_ptr<const Chain::Link> match_link(const loop::Nest& nest, std::vector<loop::Dim> columns);

struct ChainPlan {
  struct Link {
    sym::Expr column;
    const GemmKernel* kernel = nullptr;
    GemmPlan::A a = GemmPlan::A::kPack;
  };
  sym::Expr row;
  int64_t tile = 1, bytes = 1;
  std::vector<Link> links;
  std::vector<loop::Directive> inner;  // vectorize and accumulators
};

bool is_chain(const loop::Schedule& schedule);
loop::Schedule to_schedule(const ChainPlan& plan);
ChainPlan to_chain_plan(const loop::Schedule& schedule);  // requires is_chain(schedule)

// Returns the plan of a link as a contraction by itself: loops over the chain's batch dims and the outer
// columns, rows of a block, and the innermost column dim in panels.
GemmPlan link_plan(const Chain& chain, const Chain::Part& part, const ChainPlan::Link& link);

}  // namespace stridec::kernels
