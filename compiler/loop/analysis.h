// What schedules, templates and reports ask about nests: strides, effects, cost, the class of contractions,
// equality.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::loop {

// The element that an access touches, counted from the buffer's start: the sum of index * stride.
sym::Expr offset_of(const Program& program, const Access& access);
// By how many elements the access moves when `var` grows by one; 0: it does not. Nothing where that is not
// one number for the whole loop.
std::optional<sym::Expr> stride_of(const Program& program, const Access& access, sym::Expr var,
                                   const sym::Facts& facts);

sym::Expr extent_of(const std::vector<Dim>& dims);  // the product
std::vector<sym::Expr> vars_of(const std::vector<Dim>& dims);
sym::Expr at_zero(sym::Expr e, const std::vector<Dim>& dims);  // where all of them are 0
bool depends_on_any(sym::Expr e, const std::vector<Dim>& dims);
bool is_var_of(sym::Expr e, const std::vector<Dim>& dims);  // the variable of one of them

// The conditions that a mask joins by "and"; of 1: none.
std::vector<sym::Expr> conjuncts(sym::Expr mask);

// Each round of a loop over `var` around the block stores to places of its own, so that rounds may run side by side: not
// where they share a place, such as a number that two loops inside pass on.
bool stores_apart(const Block& block, sym::Expr var);

// Buffers that the nest loads from and stores to, each once, in order of appearance; local ones included.
struct Effects {
  std::vector<BufferId> reads, writes;
  bool updates = false;  // some store combines with what is there
};
Effects effects_of(const Nest& nest);

// Whether a scan of the nest goes from place to place in memory: where it loads depends on what the step before loaded, so
// that every step waits for memory.
bool walks(const Nest& nest);

// A scan that carries one value and combines it in each step with a term that no step before has a part in: its steps may be
// taken in any association, as a reduction's. Its body computes, loads and stores, but never loads what the nest stores.
struct Accumulation {
  Combine combine;
  ValueId term;
  Block terms;  // what makes the term
  Block rest;   // what the step does with the term and what is carried, the next carried value included
};
std::optional<Accumulation> accumulation_of(const Nest& nest, const Scan& scan);

// What a nest costs, as expressions of the symbols; extents of triangular loops count at their largest. What does not fit
// in 64 bits is 2^61, all of it.
struct Cost {
  sym::Expr points = 1;  // of the parallel dims
  sym::Expr steps = 0;   // of all loops: how often the body and the bodies of loops in it run, together
  sym::Expr flops =
      0;  // additions, multiplications, comparisons and calls of functions on floats or integers; fma: 2
  // Memory that has to move when every element is loaded and stored once: what loops touch, at most the whole
  // buffer.
  sym::Expr bytes_read = 0, bytes_written = 0;
};
Cost cost_of(const Program& program, const Nest& nest);

// ---- contractions ----------------------------------------------------------------------------------------

// A factor of the product.
struct Operand {
  ValueId value;
  std::vector<const Stmt*>
      slice;  // what computes it from memory, in order: loads, lets, constants, index values
  std::vector<const Load*> loads;  // of the slice
  const Load* plain = nullptr;     // the value is this load, through conversions at most
  std::vector<sym::Expr> vars;     // index variables that it depends on, masks included
};

// A nest whose body has one reduction and that is a sum of products of two factors from memory. Points into
// the nest.
//
//   matmul          m: i       n: j      k: k
//   conv            m: n y x   n: co     k: ci r s      (loads at y*stride + r*dilation - pad, masked)
//   grouped conv    batch: g   m: n y x  n: co  k: ci r s
//   depthwise conv  batch: c   m: n y x  n: none        k: r s
//   transposed conv: as conv, with a mask on divisibility
struct Contraction {
  size_t at = 0;  // of the reduce in nest.body: statements before it and after it are prologue and epilogue
  const Reduce* reduce = nullptr;
  DType accumulate = DType::kF32;  // of the sum
  DType product = DType::kF32;     // of the factors
  Operand a, b;                    // as written
  std::vector<Dim> batch, m, n, k;
  std::vector<Dim> loose;  // parallel dims that neither factor depends on: the product is broadcast over them
};
std::optional<Contraction> classify_contraction(const Nest& nest);

// ---- equality --------------------------------------------------------------------------------------------

// The nest's text with buffers, symbols, index variables and values named in order of appearance, without its
// name, and with what code can depend on: dtypes, strides and storage of buffers, ranges of symbols. Equal
// texts, equal kernels. `symbols` gets the program's symbols that the text calls s0, s1, ...
std::string canonical_text(const Program& program, const Nest& nest,
                           std::vector<sym::Expr>* symbols = nullptr);

}  // namespace stridec::loop
