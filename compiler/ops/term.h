// Writes composites as formulas: a Term is a value together with its builder.
//
//   Term softmax(Term x, Dims dims) {
//     const Term e = exp(x - reduce_max(x, dims, kKeep));
//     return e / reduce_sum(e, dims, kKeep);
//   }
//
// A number combined with a term becomes a rank-0 constant of the term's dtype. Operands broadcast as in NumPy
// and must have one dtype; `cast` converts. Dims count from the front and are not negative.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/helpers.h"

namespace stridec::ops {

using Dims = std::vector<int64_t>;

class Term {
 public:
  Term(graph::Builder& builder, graph::ValueId id) : builder_(&builder), id_(id) {}

  graph::Builder& builder() const { return *builder_; }
  graph::ValueId id() const { return id_; }
  operator graph::ValueId() const { return id_; }
  const graph::Shape& shape() const { return builder_->shape(id_); }
  sym::Expr dim(int64_t i) const { return shape().at(static_cast<size_t>(i)); }
  DType dtype() const { return builder_->dtype(id_); }
  int64_t rank() const { return builder_->rank(id_); }

 private:
  graph::Builder* builder_;
  graph::ValueId id_;
};

// An operand: a term, or a number that takes the dtype of the other operand.
struct Operand {
  Operand(Term t) : term(t.id()), is_term(true) {}
  Operand(double n) : number(n) {}
  graph::ValueId term;
  double number = 0;
  bool is_term = false;
};

Term number(graph::Builder& b, DType dtype, double value);
Term number_like(Term x, double value);
// A size as a rank-0 tensor.
Term size_as(graph::Builder& b, DType dtype, sym::Expr size);

Term apply(graph::OpKind kind, Term x);
Term apply(graph::OpKind kind, Term x, Operand y);
Term operator+(Term x, Operand y);
Term fma(Term x, Term y, Term z);  // x * y + z
Term operator-(Term x, Operand y);
Term operator*(Term x, Operand y);
Term operator/(Term x, Operand y);
Term operator-(Term x);
Term subtract_from(double n, Term x);  // n - x
Term divide_into(double n, Term x);    // n / x
Term exp(Term x);
Term log(Term x);
Term sqrt(Term x);
Term abs(Term x);
Term square(Term x);
Term erf(Term x);
Term tanh(Term x);
Term pow(Term x, Operand y);
Term rcp(Term x);
Term rsqrt(Term x);
// Which of two equal operands gets the gradient.
enum class Ties { kHalf, kFirst, kSecond };
Term minimum(Term x, Operand y, Ties ties = Ties::kHalf);
Term maximum(Term x, Operand y, Ties ties = Ties::kHalf);
// x, through which no gradient flows.
Term stop_gradient(Term x);
// y, which is the softmax of x along `dims`, with a softmax's gradient: y * (g - sum(g * y)), which reads y
// alone, in place of that of the formula that computes y.
Term as_softmax(Term x, Term y, const std::vector<int64_t>& dims);
Term less(Term x, Operand y);
Term less_equal(Term x, Operand y);
Term greater(Term x, Operand y);
Term greater_equal(Term x, Operand y);
Term equal(Term x, Operand y);
Term logical_not(Term x);
Term logical_and(Term x, Term y);
Term logical_or(Term x, Term y);
Term select(Term condition, Term x, Term y);
Term select(Term condition, Term x, double y);
Term select(Term condition, double x, Term y);
Term cast(Term x, DType to, bool saturate = true);
// Converts f16, bf16 and narrower floats to f32 for computing; leaves other dtypes.
Term widen(Term x);

Dims all_dims(int64_t rank);  // 0, 1, ..., rank - 1

// Reductions; `kKeep` leaves the reduced dims with extent 1.
inline constexpr bool kKeep = true;
Term reduce(graph::OpKind kind, Term x, const Dims& dims, bool keep = false);
Term reduce_sum(Term x, const Dims& dims, bool keep = false);
Term reduce_max(Term x, const Dims& dims, bool keep = false);
Term reduce_min(Term x, const Dims& dims, bool keep = false);
Term reduce_mean(Term x, const Dims& dims, bool keep = false);

// Views.
Term reshape(Term x, const graph::Shape& shape);
Term permute(Term x, const Dims& order);
Term transpose(Term x, int64_t a, int64_t b);  // swaps two dims
Term expand(Term x, const graph::Shape& shape);
Term unsqueeze(Term x, const Dims& positions);  // positions in the result, ascending
Term squeeze(Term x, const Dims& dims);
Term slice(Term x, int64_t dim, sym::Expr start, sym::Expr extent, int64_t step = 1);
Term flip(Term x, const Dims& dims);
Term concat(const std::vector<Term>& parts, int64_t dim);
Term pad(Term x, const graph::Shape& before, const graph::Shape& after, double value);
Term index_along(graph::Builder& b, const graph::Shape& shape, int64_t dim, DType dtype);
// 0, 1, ... along `dim` of a tensor of `rank`, i64; other dims have size 1.
Term positions_along(graph::Builder& b, sym::Expr size, int64_t dim, int64_t rank);
// The elements of a tensor along `dim` of one of `rank`; other dims have size 1.
Term along_dim(Term values, int64_t dim, int64_t rank);
Term filled(graph::Builder& b, const graph::Shape& shape, DType dtype, double value);
// Whether negative indices count from the end, or are errors of the run, as in PyTorch's index_add().
enum class Negative { kFromEnd, kError };
Term gather(Term data, Term indices, int64_t dim, int64_t batch_dims = 0,
            Negative negative = Negative::kFromEnd);

// Prepares a parameter (a bias, a scale) for a pointwise operation whose result has `shape`, with ONNX's
// unidirectional broadcasting: the parameter stretches, the other operand never does. Returns the parameter
// with at most as many dims as `shape`, each 1 or equal to that of `shape`; guards check what is not known.
// `what` names the parameter in error messages.
Term unidirectional(Term parameter, const graph::Shape& shape, const std::string& what);

// Product of all sizes, and of the sizes of dims [from, to).
sym::Expr count(const graph::Shape& shape);
sym::Expr count(const graph::Shape& shape, int64_t from, int64_t to);

}  // namespace stridec::ops
