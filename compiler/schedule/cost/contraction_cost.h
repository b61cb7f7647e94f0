// Analytical cost model of a contraction on a CPU, in cycles of one core, with symbols at typical sizes.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Total sizes of the roles that a plan gives to the nest's dims.
struct ContractionShape {
  double batch, rows, columns, segments, run;
  // Cycles per element of a computed factor a, beyond its loads.
  double computing;
  bool shared;  // the work is split between threads
  // For plans that copy lines: the number of images (no tile's rows span two of them), of copies, of the
  // copies' lines beyond those of an image's rows in total, of rows per line, and of k per copied row.
  double images = 1, copies = 0, more_lines = 0, line = 0, copied_k = 0;
  double few_rows = 0;  // of small sizes where rows are symbolic and typical ones are not many; 0: none
  double k() const { return segments * run; }
};

// How an access after the sum moves from one column to the next: by vectors, or not at all; element by
// element; or element by element to addresses that share a few sets of L1, so that lines are evicted before
// the next row needs them.
enum class ColumnAccess { kVectors, kApart, kSameSets };

// Cycles per column of such an access beyond that of a vector.
double scattered_cycles(ColumnAccess access);

// Whether a copy meets contiguous elements, so that it moves vectors. a: the number of contiguous elements of
// factor a, 0 if there are none. turned_a: elements of neighbouring rows of a are contiguous instead, so the
// copy transposes. b: all elements of b are contiguous. masked_b: each element of b is bounds-checked one by
// one. b_row: bytes from one k to the next where columns of b are contiguous, 0 if that is not a constant.
struct UnitSteps {
  double a = 0;
  bool turned_a = false, b = false, masked_b = false;
  int64_t b_row = 0;
};

// `scattered`: scattered_cycles() of all accesses after the sum. With few_rows the cycles are of these as
// well, in proportion: a plan that suits only typical sizes is not the best of them.
double plan_cycles(const kernels::GemmPlan& plan, const ContractionShape& s, UnitSteps unit, double scattered,
                   const CpuTarget& target);

// The numbers of row tiles that a task may have, largest first.
std::vector<int64_t> tiles_of_task(const kernels::GemmPlan& plan, const ContractionShape& s,
                                   const CpuTarget& target);

// The depth k of a panel of b. For tile registers (AMX), which would wait for data in L2, a panel takes half
// of L1. For other kernels it takes a quarter of L2, which leaves room for the rows and the next panel. A k
// that is up to a quarter longer stays in one piece, so that the sums of its tiles need not go through
// memory.
int64_t choose_chunk(const kernels::GemmKernel& kernel, const CpuTarget& target, double k);

// Cycles the general emitter needs to compute an element of a computed factor, beyond loading its inputs.
double computing_cycles(const kernels::Factor& factor);

// Cycles of the nest under the general emitter, comparable to a plan's cycles.
double general_cycles(const loop::Program& program, const loop::Nest& nest,
                      const kernels::Contraction& contraction, const CpuTarget& target);

}  // namespace stridec::schedule
