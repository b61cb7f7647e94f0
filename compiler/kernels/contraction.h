// The contractions of loop/analysis.h that micro-kernels can run:
//
//   out[batch, m, n] = epilogue(sum over k of a[batch, m, k] * b[batch, k, n])
//
// Matrix products in every layout, batched and grouped ones, convolutions of any rank with stride, dilation
// and padding, their transposes and einsums are nests of this form; what tells them apart is which dims each
// factor depends on and with which strides, as loop::classify_contraction tells.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::kernels {

using Vars = std::set<sym::Expr, sym::ExprLess>;

// One side of the product.
struct Factor {
  loop::ValueId value;
  // Statements that compute it, in order, from the nest's body and the reduce's: loads, lets, constants,
  // index values.
  std::vector<const loop::Stmt*> slice;
  // The value is this load as it stands, without conversion; else null.
  const loop::Load* load = nullptr;
  Vars vars;  // dims of the nest and of the reduce that it depends on
};

// Points into the nest that it describes.
struct Contraction {
  size_t at = 0;  // of the reduce in nest.body
  const loop::Reduce* reduce = nullptr;
  DType dtype = DType::kF32;  // f32, f64 or i32: of the product and the sum
  Factor factors[2];          // as written
};

// Nothing where the nest is not one sum of products with pointwise statements around it, or where a factor's
// value depends on data other than through loads at index expressions.
std::optional<Contraction> match_contraction(const loop::Nest& nest);

// The factor as a micro-kernel takes it that multiplies elements of `dtype`: the factor itself, what it is a widening
// conversion of, or, where its values fit, the factor to be narrowed on the way to scratch. Nothing where elements of
// this dtype do not hold all its values.
std::optional<Factor> as_elements(const loop::Nest& nest, const Factor& factor, DType dtype);

// The factor that a plan vectorises, along `columns`; the other is broadcast along them and has `rows`. Dims that one factor
// alone depends on tell, not those of both, such as a window's groups; where there are none, it is the second.
size_t side_of_columns(const Contraction& contraction, const std::vector<sym::Expr>& rows,
                       const std::vector<sym::Expr>& columns);

// Element offset of an access under its buffer's strides, simplified.
sym::Expr offset_of(const loop::Program& program, const loop::Access& access, const sym::Facts& facts);

// e == rest + sum of coefficients[i] * vars[i], where neither holds any of vars; nothing if e is no such sum.
struct LinearForm {
  sym::Expr rest;
  std::vector<sym::Expr> coefficients;
};
std::optional<LinearForm> linear_form(sym::Expr e, const std::vector<sym::Expr>& vars);

// Where `dims` (outer first) run through e like one dim, the step of that dim: every outer coefficient is the
// product of the next one and its extent. 0 dims: 0.
std::optional<sym::Expr> merged_step(sym::Expr e, const std::vector<loop::Dim>& dims,
                                     const sym::Facts& facts);

// The step of k where a load's rows lie next to each other at every k: a copy that puts k next to each other turns squares.
std::optional<sym::Expr> step_of_turned_rows(const loop::Program& program, const loop::Access& access,
                                             const std::vector<loop::Dim>& rows,
                                             const std::vector<loop::Dim>& k, const sym::Facts& facts);

// Facts inside a nest: the program's, with the ranges of its dims and of the reduce's.
sym::Facts facts_in(const loop::Program& program, const loop::Nest& nest, const Contraction& contraction);

}  // namespace stridec::kernels
