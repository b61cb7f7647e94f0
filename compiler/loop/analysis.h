// Analyses of nests for schedules, templates and reports: strides, effects, cost, contraction classes,
// equality.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::loop {

// The offset in elements of an access from the buffer's start: the sum of index * stride.
sym::Expr offset_of(const Program& program, const Access& access);
// The number of elements by which the access moves when `var` grows by one; 0: it does not depend on `var`.
// Nothing if the step is not the same throughout the loop.
std::optional<sym::Expr> stride_of(const Program& program, const Access& access, sym::Expr var,
                                   const sym::Facts& facts);

sym::Expr extent_of(const std::vector<Dim>& dims);  // their product
std::vector<sym::Expr> vars_of(const std::vector<Dim>& dims);
sym::Expr at_zero(sym::Expr e, const std::vector<Dim>& dims);  // with all of their variables 0
bool depends_on_any(sym::Expr e, const std::vector<Dim>& dims);
bool is_var_of(sym::Expr e, const std::vector<Dim>& dims);  // the variable of one of them

// The conditions that a mask joins by "and"; empty for the mask 1.
std::vector<sym::Expr> conjuncts(sym::Expr mask);

// Whether every iteration of a loop over `var` around the block stores to elements of its own, so that
// iterations may run in parallel. False where they share an element, such as a temporary that connects two
// loops inside.
bool stores_apart(const Block& block, sym::Expr var);

// Buffers that the nest loads from and stores to, each once, in order of appearance; local buffers included.
struct Effects {
  std::vector<BufferId> reads, writes;
  bool updates = false;  // some store combines with the old value
};
Effects effects_of(const Nest& nest);

// Whether a scan of the nest chases pointers: its load addresses depend on values that the previous step
// loaded, so every step waits for memory latency.
bool walks(const Nest& nest);

// A scan that carries one value and combines it in each step with a term that does not depend on earlier
// steps. Its steps may be reassociated like a reduction. The body never loads a buffer that the nest stores.
struct Accumulation {
  Combine combine;
  ValueId term;
  Block terms;  // the statements that compute the term
  Block rest;   // the statements that use the term and the carried value, including the next carried value
};
std::optional<Accumulation> accumulation_of(const Nest& nest, const Scan& scan);

// The cost of a nest, as expressions of the symbols; extents of triangular loops count at their largest. A
// quantity that does not fit in 64 bits is 2^61.
struct Cost {
  sym::Expr points = 1;  // of the parallel dims
  sym::Expr steps = 0;   // body executions of all loops together, nested ones included
  // Additions, multiplications, comparisons and function calls on floats or integers; an fma counts 2.
  sym::Expr flops = 0;
  // Memory traffic if every element is loaded and stored once: the elements that the loops touch, at most the
  // whole buffer.
  sym::Expr bytes_read = 0, bytes_written = 0;
};
Cost cost_of(const Program& program, const Nest& nest);
int flops_of(ScalarOp op);
// How often a run of the nest executes each statement: a loop as often as its body.
// Factors of a contraction are computed once for each of their elements, because kernels copy them. Nothing
// where a number does not fit in 64 bits.
struct Execution {
  const Stmt* stmt;
  sym::Expr times;
};
std::vector<Execution> executions_of(const Program& program, const Nest& nest);

// ---- contractions ----------------------------------------------------------------------------------------

// A factor of a contraction's product.
struct Operand {
  ValueId value;
  // The statements that compute it from memory, in order: loads, lets, constants, index values.
  std::vector<const Stmt*> slice;
  std::vector<const Load*> loads;  // the loads in the slice
  const Load* plain = nullptr;     // the value is this load, possibly converted
  std::vector<sym::Expr> vars;     // index variables that it depends on, those of masks included
};

// A nest whose body has exactly one reduction, a sum of products of two factors loaded from memory. The
// fields point into the nest.
//
//   matmul          m: i       n: j      k: k
//   conv            m: n y x   n: co     k: ci r s      (loads at y*stride + r*dilation - pad, masked)
//   grouped conv    batch: g   m: n y x  n: co  k: ci r s
//   depthwise conv  batch: c   m: n y x  n: none        k: r s
//   transposed conv: as conv, with a mask on divisibility
struct Contraction {
  // Position of the reduce in nest.body; statements before it are the prologue, those after it the epilogue.
  size_t at = 0;
  const Reduce* reduce = nullptr;
  DType accumulate = DType::kF32;  // dtype of the sum
  DType product = DType::kF32;     // dtype of the factors
  Operand a, b;                    // in the order of the IR
  std::vector<Dim> batch, m, n, k;
  std::vector<Dim> loose;  // parallel dims that neither factor depends on: the result is broadcast over them
};
std::optional<Contraction> classify_contraction(const Nest& nest);

// ---- equality --------------------------------------------------------------------------------------------

// The nest's text with buffers, symbols, index variables and values renamed in order of appearance and
// without its name, extended by everything that code can depend on: dtypes, strides and storage of buffers,
// ranges of symbols. Nests with equal texts have equal kernels. `symbols` receives the program's symbols that
// the text calls s0, s1, ...
std::string canonical_text(const Program& program, const Nest& nest,
                           std::vector<sym::Expr>* symbols = nullptr);

}  // namespace stridec::loop
