// Matches the contractions of loop/analysis.h that micro-kernels can run:
//
//   out[batch, m, n] = epilogue(sum over k of a[batch, m, k] * b[batch, k, n])
//
// GEMMs in every layout, batched and grouped ones, convolutions of any rank with stride, dilation and
// padding, transposed convolutions and einsums are nests of this form. They differ only in which dims each
// factor depends on and with which strides; see loop::classify_contraction.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::kernels {

using Vars = std::set<sym::Expr, sym::ExprLess>;

// One factor of the contraction.
struct Factor {
  loop::ValueId value;
  // Statements that compute it, in order, from the bodies of the nest and of the reduction: loads, lets,
  // constants, index values.
  std::vector<const loop::Stmt*> slice;
  // The load, if the value is an unconverted load; otherwise null.
  const loop::Load* load = nullptr;
  Vars vars;  // dims of the nest and of the reduction that it depends on
};

// The load that the factor consists of, apart from a cast; null if it is masked or computed.
const loop::Load* plain_load(const Factor& factor);

// Holds pointers into the nest that it describes.
struct Contraction {
  size_t at = 0;  // index of the reduction in nest.body
  const loop::Reduce* reduce = nullptr;
  DType dtype = DType::kF32;  // f32, f64 or i32: type of the products and of the sum
  Factor factors[2];          // in source order
};

// Returns nothing if the nest is not a single sum of products with pointwise statements around it, or if a
// factor depends on data in any way other than through loads at index expressions.
std::optional<Contraction> match_contraction(const loop::Nest& nest);

// Returns the factor in the form in which a micro-kernel with elements of `dtype` reads it: the factor
// itself, the value that it is a widening conversion of, or, for i16, an integer whose values fit and which
// is narrowed when it is copied to scratch. Nothing if `dtype` does not hold all its values.
std::optional<Factor> as_elements(const loop::Nest& nest, const Factor& factor, DType dtype);

// Returns the index of the factor that a plan vectorises, along `columns`; the other one has `rows` and is
// broadcast. Only dims that exactly one factor depends on decide, not shared ones such as the groups of a
// depthwise convolution. If there are none, it is the second factor.
size_t side_of_columns(const Contraction& contraction, const std::vector<sym::Expr>& rows,
                       const std::vector<sym::Expr>& columns);

// Element offset of an access under its buffer's strides, simplified.
sym::Expr offset_of(const loop::Program& program, const loop::Access& access, const sym::Facts& facts);

// e == rest + sum of coefficients[i] * vars[i], where neither part contains any of `vars`. linear_form()
// returns nothing if e has no such form.
struct LinearForm {
  sym::Expr rest;
  std::vector<sym::Expr> coefficients;
};
std::optional<LinearForm> linear_form(sym::Expr e, const std::vector<sym::Expr>& vars);

// Returns the stride in e of `dims` (outer first) taken as one flattened dim: every outer coefficient has to
// equal the next one times its extent. Without dims: 0. Otherwise nothing.
std::optional<sym::Expr> merged_step(sym::Expr e, const std::vector<loop::Dim>& dims,
                                     const sym::Facts& facts);

// Returns the stride of k if the load's rows are adjacent in memory at every k. A copy that makes k
// contiguous then transposes square blocks.
std::optional<sym::Expr> stride_of_transposed_rows(const loop::Program& program, const loop::Access& access,
                                                   const std::vector<loop::Dim>& rows,
                                                   const std::vector<loop::Dim>& k, const sym::Facts& facts);

// Facts inside a nest: the program's, plus the ranges of the dims of the nest and of the reduction.
sym::Facts facts_in(const loop::Program& program, const loop::Nest& nest, const Contraction& contraction);

}  // namespace stridec::kernels
