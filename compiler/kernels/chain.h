// Chains: contractions that pass rows on in cache, with work on whole rows between them. Attention and its kin.
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
// A link is a `for` at the top of the body that is a contraction with the nest's dims as further dims of its own: one
// factor depends on the for's dims (columns), the other, broadcast one does not. No link's column factor depends on the
// nest's row dim, so that all rows of a block share it. Everything else runs row by row.
//
// Text form, of kernel "chain":
//   rows %m           the nest's dim whose points are taken in blocks
//   tile N BYTES      most rows of a block: N, or fewer where what a block keeps in scratch would outgrow BYTES
//   gemm %n K a       the link with the first column dim %n runs on micro-kernel K and takes its broadcast factor
//                     `direct` from the rows in scratch, or `pack`ed for the block
//   vectorize, accumulators      of loops in row statements, as in schedule/directives/schedule.h
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/gemm_plan.h"

namespace stridec::kernels {

struct Chain {
  struct Part {
    bool link = false;
    loop::Nest nest;                 // as a nest of its own: over the chain's dims and, of a link, the for's
    std::vector<loop::Dim> columns;  // of a link: the for's dims
  };
  std::vector<loop::Dim> batch;  // dims of the nest but the rows', in order
  loop::Dim row;
  std::vector<Part> parts;  // in order
};

// Nothing where the nest has no link; `reason` says why where it looked like a chain. Where all dims move the factors
// with the columns, no rows share them: `single`, each point is one row then, of a dim that is not the nest's.
std::optional<Chain> match_chain(const loop::Nest& nest, std::string* reason = nullptr, bool single = false);

// Factors of a link: the broadcast one and the one with the columns.
struct LinkFactors {
  int rows = 0, columns = 1;  // into Contraction::factors
};
std::optional<LinkFactors> link_factors(const Contraction& contraction,
                                        const std::vector<loop::Dim>& columns);

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
ChainPlan to_chain_plan(const loop::Schedule& schedule);  // of an is_chain() schedule

// How a link runs as a contraction by itself: the chain's batch dims and the outer columns one by one, the rows of a
// block, the innermost column dim in panels.
GemmPlan link_plan(const Chain& chain, const Chain::Part& part, const ChainPlan::Link& link);

}  // namespace stridec::kernels
