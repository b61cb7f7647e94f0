// The factors of complex matrices, by the methods of the real ones. A rotation has a phase besides.
#include <vector>

#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/factor_steps.h"
#include "compiler/ops/composite/factorization.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using namespace factors;

namespace {

// The parts have the batch's sizes; `s.x` is the real part.
struct ComplexBatch {
  Batch s;
  Complex z;
};
ComplexBatch batch_of(const Complex& z) {
  const Batch re = factors::batch_of(z.re);
  return {re, {re.x, factors::batch_of(z.im).x}};
}
Complex restored(const Complex& z, const Shape& outer, DType dtype) {
  return each(z, [&](Term t) { return factors::restored(t, outer, dtype); });
}
Complex matrix_product(const Complex& x, const Complex& y) {
  return {ops::matmul(x.re, y.re) - ops::matmul(x.im, y.im),
          ops::matmul(x.re, y.im) + ops::matmul(x.im, y.re)};
}
Complex scaled_by(const Complex& z, Term factor) {
  return each(z, [&](Term t) { return t * factor; });
}
Term squared_length(const Complex& z) { return square(z.re) + square(z.im); }
Term largest_part(const Complex& z, const Dims& dims) {
  return reduce_max(maximum(abs(z.re), abs(z.im)), dims, kKeep);
}
// The sum over the rows, dim 1, of conj(x) y.
Complex inner(const Complex& x, const Complex& y, bool keep = false) {
  const Complex product = conjugate(x) * y;
  return each(product, [&](Term t) { return reduce_sum(t, {1}, keep); });
}
Complex carried_pair(const LoopState& state, Builder& b, size_t at) {
  return {{b, state.carried[at]}, {b, state.carried[at + 1]}};
}

// One reflection: the column `here` from row `step` on becomes (beta, 0, ...).
struct Reflection {
  Term beta;          // real, [batch, 1]
  Complex factor, v;  // [batch, 1], [batch, m]
};
Reflection reflection(const Complex& here, const Complex& head, Term row, Term step) {
  const Complex tail = select(greater(row, step), here, number_like(here, 0, 0));
  const Complex rest = select(greater_equal(row, step), here, number_like(here, 0, 0));
  const Term moves = logical_or(greater(largest_part(tail, {1}), 0), logical_not(equal(head.im, 0)));
  const Term largest = largest_part(rest, {1}), scale = select(greater(largest, 0), largest, 1);
  const Complex unit = each(tail, [&](Term t) { return t / scale; });
  const Complex all = each(rest, [&](Term t) { return t / scale; });
  const Term size = scale * sqrt(reduce_sum(squared_length(all), {1}, kKeep));
  const Term beta = select(moves, select(less(head.re, 0), size, -size), head.re);
  const Term divisor = select(moves, beta, 1);
  const Complex factor{select(moves, (beta - head.re) / divisor, 0), select(moves, -head.im / divisor, 0)};
  const Complex difference{select(moves, (head.re - beta) / scale, 1), select(moves, head.im / scale, 0)};
  const Complex below = unit * reciprocal(difference);
  return {beta, factor, select(equal(row, step), number_like(below, 1, 0), below)};
}

}  // namespace

Reflections<Complex> reflections(const Complex& given) {
  const auto [s, z] = batch_of(given);
  Builder& b = z.re.builder();
  const sym::Expr batch = z.re.dim(0);
  const DType dtype = given.re.dtype();
  const Term row = rows_of(b, s.m), column = columns_of(b, s.n);
  const LoopResult result = loop(b, s.k, std::nullopt, {z.re.id(), z.im.id()}, [&](const LoopState& state) {
    const Complex a = carried_pair(state, b, 0);
    const Term step(b, state.counter_value);
    const Complex here = each(a, [&](Term t) { return squeeze(slice(t, 2, state.counter, 1), {2}); });
    const Complex head = each(here, [&](Term t) { return slice(t, 1, state.counter, 1); });
    const Reflection h = reflection(here, head, row, step);
    const Complex down = each(h.v, [](Term t) { return unsqueeze(t, {2}); });
    const Complex factor = each(conjugate(h.factor), [](Term t) { return unsqueeze(t, {2}); });
    const Complex moved = a - down * (inner(down, a, true) * factor);
    const Complex corner{expand(h.beta, h.v.re.shape()), number_like(h.v, 0, 0).im};
    const Complex packed =
        each(select(equal(row, step), corner, h.v), [](Term t) { return unsqueeze(t, {2}); });
    const Term own = logical_and(equal(column, step), unsqueeze(greater_equal(row, step), {2}));
    const Complex next = select(own, packed, select(greater(column, step), moved, a));
    return LoopStep{.condition = std::nullopt,
                    .carried = {next.re.id(), next.im.id()},
                    .stacked = {reshape(h.factor.re, {batch}).id(), reshape(h.factor.im, {batch}).id()}};
  });
  const auto stacked = [&](size_t at) { return transpose({b, result.stacked[at]}, 0, 1); };
  return {restored(Complex{{b, result.carried[0]}, {b, result.carried[1]}}, s.outer, dtype),
          restored(Complex{stacked(0), stacked(1)}, s.outer, dtype)};
}

Complex orthogonal(const Complex& packed, const Complex& given_scale, sym::Expr columns) {
  const auto [s, z] = batch_of(packed);
  Builder& b = z.re.builder();
  const sym::Expr batch = z.re.dim(0), k = given_scale.re.dim(given_scale.re.rank() - 1);
  const Complex scale = each(given_scale, [&](Term t) { return flip(reshape(widen(t), {batch, k}), {1}); });
  const Complex vectors = each(z, [&](Term t) { return flip(slice(t, 2, 0, k), {2}); });
  const Term row = rows_of(b, s.m);
  const Complex start = real(identity(s, s.m, columns));
  const LoopResult result =
      loop(b, k, std::nullopt, {start.re.id(), start.im.id()}, [&](const LoopState& state) {
        const Complex q = carried_pair(state, b, 0);
        const Term step = size_as(b, DType::kI64, k) - Term(b, state.counter_value) - 1.0;
        const Complex here =
            each(vectors, [&](Term t) { return squeeze(slice(t, 2, state.counter, 1), {2}); });
        const Complex tail = select(greater(row, step), here, number_like(here, 0, 0));
        const Complex down = each(select(equal(row, step), number_like(here, 1, 0), tail),
                                  [](Term t) { return unsqueeze(t, {2}); });
        const Complex factor =
            each(scale, [&](Term t) { return unsqueeze(slice(t, 1, state.counter, 1), {2}); });
        const Complex next = q - down * (inner(down, q, true) * factor);
        return LoopStep{.condition = std::nullopt, .carried = {next.re.id(), next.im.id()}, .stacked = {}};
      });
  return restored(Complex{{b, result.carried[0]}, {b, result.carried[1]}}, s.outer, packed.re.dtype());
}

OrthogonalFactors<Complex> orthogonal_factors(const Complex& z, bool complete) {
  const Reflections<Complex> h = reflections(each(z, [](Term t) { return widen(t); }));
  Builder& b = z.re.builder();
  const int64_t rank = z.re.rank();
  const DType dtype = z.re.dtype();
  const sym::Expr m = z.re.dim(rank - 2);
  const sym::Expr rows = complete ? m : b.simplify(sym::min(m, z.re.dim(rank - 1)));
  const auto narrowed = [&](Term t) { return cast(t, dtype, false); };
  return {each(orthogonal(h.packed, h.scale, rows), narrowed),
          each(h.packed, [&](Term t) { return narrowed(triangle(slice(t, rank - 2, 0, rows), 0, true)); })};
}

namespace {

// A rotation of indices i and partner, whose product is |product| phase: column i becomes
// c x - s conj(phase) y.
struct ComplexRotation {
  Rotation r;
  Complex phase;
};
ComplexRotation complex_rotation(Term own, Term partner, const Complex& product, Term first) {
  const Term size = length(product), divisor = select(equal(size, 0), 1, size);
  return {rotation(own, partner, size, first), {product.re / divisor, product.im / divisor}};
}
// The columns (dim 2) or, by the conjugate transpose of the same matrix, the rows (dim 1).
Complex rotated(const Complex& z, const ComplexRotation& by, Term partner, int64_t dim) {
  const Complex phase = dim == 2 ? conjugate(by.phase) : by.phase;
  const Complex factor = each(phase, [&](Term t) { return unsqueeze(t * by.r.s, {3 - dim}); });
  const Complex other = each(z, [&](Term t) { return gather(t, partner, dim); });
  return scaled_by(z, unsqueeze(by.r.c, {3 - dim})) - other * factor;
}
Rotated step_of(const Complex& z, const Complex& vectors, Term off) {
  return {{z.re, z.im, vectors.re, vectors.im}, off};
}

}  // namespace

SingularValues<Complex> singular_values(const Complex& given) {
  const auto [s, z] = batch_of(given);
  Builder& b = z.re.builder();
  const DType dtype = z.re.dtype(), own_dtype = given.re.dtype();
  const sym::Expr batch = z.re.dim(0);
  const double eps = machine_epsilon(dtype);
  const Term largest = largest_part(z, {1, 2}), scale = select(greater(largest, 0), largest, 1);
  const Complex r = orthogonal_factors(each(z, [&](Term t) { return t / scale; }), false).r;
  const Complex one = real(identity(s, s.n, s.n));
  const std::vector<Term> ends = run_rotations(
      b, s.n, {r.re, r.im, one.re, one.im}, 4 * eps, [&](const Round& round, const std::vector<Term>& own) {
        const Complex x{own[0], own[1]}, v{own[2], own[3]};
        const Complex other = each(x, [&](Term t) { return gather(t, round.partner, 2); });
        const Term squares = reduce_sum(squared_length(x), {1}), theirs = gather(squares, round.partner, 1);
        const Term alone = equal(round.partner, index_along(b, {s.n}, 0, DType::kI64));
        const Complex met = inner(x, other), product = select(alone, number_like(met, 0, 0), met);
        const ComplexRotation by = complex_rotation(squares, theirs, product, round.first);
        const Term least = reduce_max(squares, {1}, kKeep) * eps;
        const Term size = maximum(sqrt(squares) * sqrt(theirs), least);
        return step_of(rotated(x, by, round.partner, 2), rotated(v, by, round.partner, 2),
                       length(product) / select(greater(size, 0), size, 1));
      });
  const Ordered sorted = sort(sqrt(reduce_sum(squared_length({ends[0], ends[1]}), {1})), 1, true);
  const Complex right =
      each(Complex{ends[2], ends[3]}, [&](Term t) { return gather(t, sorted.indices, 2, 1); });
  const Term values = slice(sorted.values, 1, 0, s.k) * reshape(scale, {batch, 1});
  return {factors::restored(values, s.outer, own_dtype), restored(right, s.outer, dtype),
          restored(matrix_product(z, right), s.outer, dtype)};
}

SingularVectors<Complex> singular_vectors(const SingularValues<Complex>& s, bool full, DType dtype) {
  const OrthogonalFactors<Complex> f = orthogonal_factors(s.scaled, full);
  const Term negative = negative_columns(f.r.re);
  const int64_t last = s.right.re.rank() - 1;
  const sym::Expr kept = s.values.dim(last - 1);
  return {each(f.q, [&](Term t) { return cast(select(negative, -t, t), dtype, false); }),
          each(s.right, [&](Term t) { return cast(full ? t : slice(t, last, 0, kept), dtype, false); })};
}

HermitianEigenvalues<Complex> symmetric_eigenvalues(const Complex& given) {
  const auto [s, z] = batch_of(given);
  Builder& b = z.re.builder();
  b.require(sym::eq(s.m, s.n), "a matrix of {0} x {1} is not square", {s.m, s.n});
  const DType dtype = given.re.dtype();
  const sym::Expr n = s.n;
  const Term largest = largest_part(z, {1, 2}), scale = select(greater(largest, 0), largest, 1);
  const Term index = index_along(b, {n}, 0, DType::kI64), on = eye(b, {n, n}, 0);
  const auto diagonal = [&](Term a) { return reduce_sum(select(on, a, 0), {1}); };
  const Complex one = real(identity(s, n, n));
  const std::vector<Term> ends = run_rotations(
      b, n, {z.re / scale, z.im / scale, one.re, one.im}, machine_epsilon(z.re.dtype()) / 2,
      [&](const Round& round, const std::vector<Term>& own) {
        const Complex a{own[0], own[1]}, v{own[2], own[3]};
        const Term squares = diagonal(a.re), theirs = gather(squares, round.partner, 1);
        const Term met = equal(index_along(b, {n, 1}, 0, DType::kI64), unsqueeze(round.partner, {0}));
        // The mean of the two products of a pair, which rounding makes differ.
        const Complex theirs_by_own = each(a, [&](Term t) { return reduce_sum(select(met, t, 0), {1}); });
        const Complex mean = (each(theirs_by_own, [&](Term t) { return gather(t, round.partner, 1); }) +
                              conjugate(theirs_by_own)) *
                             0.5;
        const Complex product = select(equal(round.partner, index), number_like(mean, 0, 0), mean);
        const ComplexRotation by = complex_rotation(squares, theirs, product, round.first);
        const Complex half = rotated(a, by, round.partner, 2);
        return step_of(rotated(half, by, round.partner, 1), rotated(v, by, round.partner, 2),
                       length(product));
      });
  const Ordered sorted = sort(diagonal(ends[0]), 1);
  const Complex vectors =
      each(Complex{ends[2], ends[3]}, [&](Term t) { return gather(t, sorted.indices, 2, 1); });
  return {factors::restored(sorted.values * reshape(scale, {z.re.dim(0), 1}), s.outer, dtype),
          restored(vectors, s.outer, dtype)};
}

}  // namespace stridec::ops
