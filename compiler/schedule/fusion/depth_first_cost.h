// Cost model of depth-first tiles of a chain's rows, at typical sizes: tile length, recomputation, repeated
// reads, and the memory traffic saved. The figures are not specific to one machine.
#pragma once

#include <string>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/depth_first_chain.h"

namespace stridec::schedule {

// Costs for one image, or for the number of images that every run has; more images save more traffic.
struct TileCost {
  double weights = 0;  // bytes of weights that each tile reads
  double passing = 0;  // bytes of intermediates per tile
  // Cycles of a core to move the intermediates of the unfused nests beyond a thread's cache.
  double traffic = 0;
  double again = 0;     // cycles of a core for recomputation, and for GEMMs that are slower in tiles
  double overhead = 0;  // `again` plus all other cost of the tiles over the unfused nests
  double work = 0;      // cycles of the unfused nests
};

// Cycles of a core for a nest's arithmetic.
double work_of(const loop::Program& program, const loop::Nest& nest);

// Chooses the longest tile whose intermediates fit `cache` bytes of a thread's cache and that still gives
// enough tiles for the threads. Returns false and sets `why` if there is none.
bool choose_length(const loop::Program& program, RowChain& chain, int64_t cache, std::string& why);
// The shortest tile whose reads of weights and calls take little time compared with its arithmetic; 0: no
// tile shorter than the chain's longest one.
int64_t finest_length(const loop::Program& program, const RowChain& chain, const TileCost& cost);
TileCost cost_of_tiles(const loop::Program& program, const Flow& flow, const RowChain& chain);

// Cycles of a core to read or write this many bytes.
double cycles_to_move(const loop::Program& program, sym::Expr bytes);

// Cycles of a core to write a buffer of as many images as the chain's and to read it in another nest.
double traffic_of(const loop::Program& program, const RowChain& chain, loop::BufferId id);

}  // namespace stridec::schedule
