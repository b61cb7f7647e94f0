// What a contraction takes on a CPU: an analytical model, in cycles of one core, for symbols at a typical size.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Sizes of the roles that a plan gives to the nest's dims.
struct ContractionShape {
  double batch, rows, columns, segments, run;
  double computing;  // what an element of a computed a takes beyond loads, cycles
  bool shared;       // by threads
  // Of a plan that copies lines: images, that no tile's rows are of two of, copies, their lines beyond those of an image's
  // rows, all together, rows of a line, and k of a copied row.
  double images = 1, copies = 0, more_lines = 0, line = 0, copied_k = 0;
  double k() const { return segments * run; }
};

// How results of neighbouring columns are stored: as vectors; one by one; one by one to addresses that differ by multiples
// of a page, which share a few lines of the cache, so that each is driven out before the next row's store to it.
enum class Stores { kVectors, kApart, kSameLines };

// Whether the elements that a copy meets in order are neighbours, so that it moves vectors: how many of a are, 0 where they
// are not, unless those of neighbouring rows are, and whether all of b are. What is asked for each element of b, whether it is
// in range, is asked one by one.
struct UnitSteps {
  double a = 0;
  bool turned_a = false, b = false, masked_b = false;
};

double plan_cycles(const kernels::GemmPlan& plan, const ContractionShape& s, UnitSteps unit, Stores stores,
                   const CpuTarget& target);

// Tiles of rows that a task may have: most of them first.
std::vector<int64_t> tiles_of_task(const kernels::GemmPlan& plan, const ContractionShape& s,
                                   const CpuTarget& target);

// Of k that a panel of half the cache can hold beside the rows and the next panel. Tile registers are fast enough to wait
// for what is in L2. Of others a panel that is a little larger is one piece still: its tiles' sums need not lie in memory.
int64_t choose_chunk(const kernels::GemmKernel& kernel, const CpuTarget& target, double k);

// What the general emitter takes for an element of a factor that is computed, beyond loading it.
double computing_cycles(const kernels::Factor& factor);

// What the general emitter takes for the nest, in the cycles of a plan.
double general_cycles(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);

}  // namespace stridec::schedule
