// What strips of a chain's rows take, at typical sizes of the program's symbols: how long they are, what is computed twice,
// what is read again, what goes through memory no longer. Figures of no machine in particular.
#pragma once

#include <string>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/depth_first_chain.h"

namespace stridec::schedule {

// Of one image, or of all that a run is sure to have: with more of them more stays out of memory.
struct StripCost {
  double weights = 0;  // bytes that each strip reads
  double passing = 0;  // bytes that pass in one
  double traffic =
      0;  // cycles of a core for what passes without strips, through what lies behind a thread's cache
  double again = 0;     // cycles of a core for what is computed twice
  double overhead = 0;  // these, and all else that strips take beyond the nests by themselves
  double work = 0;      // cycles of the nests by themselves
};

// Cycles of a core for a nest's arithmetic.
double work_of(const loop::Program& program, const loop::Nest& nest);

// Gives the chain's strips the greatest length with which what passes stays in so many bytes of a thread's cache, and with which
// there are enough of them for threads.
bool choose_length(const loop::Program& program, RowChain& chain, int64_t cache, std::string& why);
StripCost cost_of_strips(const loop::Program& program, const Flow& flow, const RowChain& chain);

// Likewise for so many bytes that it reads or writes.
double cycles_to_move(const loop::Program& program, sym::Expr bytes);

// Cycles of a core to write a buffer of as many images as the chain's and to read it in another nest.
double traffic_of(const loop::Program& program, const RowChain& chain, loop::BufferId id);

}  // namespace stridec::schedule
