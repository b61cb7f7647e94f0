// Each loop takes one iteration per column, or one per round of rotations.
#include "compiler/ops/composite/factorization.h"

#include <vector>

#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/ops/call.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/creation.h"
#include "compiler/ops/composite/factor_steps.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;
using graph::Shape;

namespace factors {

Batch batch_of(Term x) {
  if (x.rank() < 2) does_not_fit(cat("a matrix is wanted, not ", to_string(x.shape())));
  const Shape outer(x.shape().begin(), x.shape().end() - 2);
  const sym::Expr m = x.dim(x.rank() - 2), n = x.dim(x.rank() - 1);
  return {reshape(widen(x), {count(outer), m, n}), outer, m, n, x.builder().simplify(sym::min(m, n))};
}
Batch square_batch_of(Term x) {
  Batch out = batch_of(x);
  x.builder().require(sym::eq(out.m, out.n), "a matrix of {0} x {1} is not square", {out.m, out.n});
  return out;
}
Term restored(Term x, const Shape& outer, DType dtype) {
  Shape shape = outer;
  shape.insert(shape.end(), x.shape().begin() + 1, x.shape().end());
  return cast(reshape(x, shape), dtype, false);
}
Term rows_of(Builder& b, sym::Expr m) { return index_along(b, {1, m}, 1, DType::kI64); }
Term columns_of(Builder& b, sym::Expr n) { return index_along(b, {1, 1, n}, 2, DType::kI64); }
Term identity(const Batch& like, sym::Expr rows, sym::Expr columns) {
  Builder& b = like.x.builder();
  return expand(cast(eye(b, {rows, columns}, 0), like.x.dtype()), {like.x.dim(0), rows, columns});
}

Term negative_columns(Term r) {
  const int64_t rank = r.rank();
  const Term on = eye(r.builder(), {r.dim(rank - 2), r.dim(rank - 1)}, 0);
  return unsqueeze(less(reduce_sum(select(on, r, 0), {rank - 1}), 0), {rank - 2});
}
Term largest_or_one(const Batch& s) {
  const Term largest = reduce_max(abs(s.x), {1, 2}, kKeep);
  return select(greater(largest, 0), largest, 1);
}

namespace {

// In a tournament over an odd number of rounds each index meets each other one once.
struct Tournament {
  sym::Expr n, rounds;
  Round at(Term round) const {
    Builder& b = round.builder();
    const Term i = index_along(b, {n}, 0, DType::kI64), size = size_as(b, DType::kI64, rounds);
    const Term other = apply(OpKind::kMod, round + size - i, size);
    const Term of_last =
        apply(OpKind::kMod, round * size_as(b, DType::kI64, sym::floordiv(rounds + 1, 2)), size);
    const Term met = select(equal(i, size), of_last, select(equal(other, i), size, other));
    const Term partner = select(equal(met, size_as(b, DType::kI64, n)), i, met);
    return {partner, less(i, partner)};
  }
};
Tournament tournament(Builder& b, sym::Expr n) { return {n, b.simplify(n - 1 + sym::mod(n, 2))}; }

constexpr int64_t kSweeps = 30;

}  // namespace

Rotation rotation(Term own, Term partner, Term product, Term first) {
  const Term zeta = (partner - own) / (product * 2.0);
  const Term size = divide_into(1, abs(zeta) + sqrt(square(zeta) + 1.0));
  const Term forward = select(equal(zeta, 0), first, greater(zeta, 0));
  const Term t = select(equal(product, 0), 0, select(forward, size, -size));
  const Term c = rsqrt(square(t) + 1.0);
  return {c, c * t};
}
std::vector<Term> run_rotations(Builder& b, sym::Expr n, const std::vector<Term>& start, double enough,
                                const std::function<Rotated(const Round&, const std::vector<Term>&)>& round) {
  const Tournament all = tournament(b, n);
  std::vector<ValueId> carried;
  for (const Term& t : start) carried.push_back(t.id());
  const DType dtype = start[0].dtype();
  carried.push_back(number(b, dtype, 0).id());
  const LoopResult result = loop(
      b, b.simplify(all.rounds * kSweeps), number(b, DType::kBool, 1).id(), carried,
      [&](const LoopState& state) {
        const Term at =
            apply(OpKind::kMod, Term(b, state.counter_value), size_as(b, DType::kI64, all.rounds));
        const Round pairs = all.at(at);
        std::vector<Term> own;
        for (size_t i = 0; i < start.size(); ++i) own.emplace_back(b, state.carried[i]);
        const Term before(b, state.carried.back());
        const auto [next, off] = round(pairs, own);
        const Term worst = maximum(select(equal(at, 0), 0, before), reduce_max(off, all_dims(off.rank())));
        const Term last = equal(at + 1.0, size_as(b, DType::kI64, all.rounds));
        LoopStep out{.condition = logical_not(logical_and(last, less_equal(worst, enough))).id(),
                     .carried = {},
                     .stacked = {}};
        for (const Term& t : next) out.carried.push_back(t.id());
        out.carried.push_back(worst.id());
        return out;
      });
  std::vector<Term> out;
  for (size_t i = 0; i < start.size(); ++i) out.emplace_back(b, result.carried[i]);
  return out;
}

}  // namespace factors

using namespace factors;

namespace {

Term last_two_swapped(Term x) { return transpose(x, x.rank() - 2, x.rank() - 1); }
Term rotated(Term x, const Rotation& r, Term partner, int64_t dim) {
  return x * unsqueeze(r.c, {3 - dim}) - gather(x, partner, dim) * unsqueeze(r.s, {3 - dim});
}

}  // namespace

Reflections<Term> reflections(Term given) {
  const Batch s = batch_of(given);
  Builder& b = given.builder();
  const sym::Expr batch = s.x.dim(0);
  const Term row = rows_of(b, s.m), column = columns_of(b, s.n);
  const LoopResult result = loop(b, s.k, std::nullopt, {s.x.id()}, [&](const LoopState& state) {
    const Term a(b, state.carried[0]), step(b, state.counter_value);
    const Term here = squeeze(slice(a, 2, state.counter, 1), {2});  // [batch, m]
    const Term head = slice(here, 1, state.counter, 1);             // [batch, 1]
    const Term below = greater(row, step), tail = select(below, here, 0);
    const Term moves = logical_not(equal(reduce_max(abs(tail), {1}, kKeep), 0));
    const Term rest = select(greater_equal(row, step), here, 0), largest = reduce_max(abs(rest), {1}, kKeep);
    const Term scale = select(equal(largest, 0), 1, largest);  // against overflow of squares
    const Term size = scale * sqrt(reduce_sum(square(rest / scale), {1}, kKeep));
    const Term beta = select(moves, select(less(head, 0), size, -size), head);
    const Term factor = select(moves, (beta - head) / select(moves, beta, 1), 0);
    const Term v = select(equal(row, step), 1, tail / select(moves, head - beta, 1));
    const Term down = unsqueeze(v, {2});
    const Term across = reduce_sum(down * a, {1}, kKeep) * unsqueeze(factor, {2});
    const Term packed = unsqueeze(select(equal(row, step), beta, v), {2});
    const Term own = logical_and(equal(column, step), unsqueeze(greater_equal(row, step), {2}));
    const Term next = select(own, packed, select(greater(column, step), a - down * across, a));
    return LoopStep{
        .condition = std::nullopt, .carried = {next.id()}, .stacked = {reshape(factor, {batch}).id()}};
  });
  return {restored({b, result.carried[0]}, s.outer, given.dtype()),
          restored(transpose({b, result.stacked[0]}, 0, 1), s.outer, given.dtype())};
}

Term orthogonal(Term packed, Term given_scale, sym::Expr columns) {
  const Batch s = batch_of(packed);
  Builder& b = packed.builder();
  const sym::Expr batch = s.x.dim(0), k = given_scale.dim(given_scale.rank() - 1);
  const Term scale = flip(reshape(widen(given_scale), {batch, k}), {1});
  const Term vectors = flip(slice(s.x, 2, 0, k), {2}), row = rows_of(b, s.m);
  const LoopResult result =
      loop(b, k, std::nullopt, {identity(s, s.m, columns).id()}, [&](const LoopState& state) {
        const Term q(b, state.carried[0]),
            step = size_as(b, DType::kI64, k) - Term(b, state.counter_value) - 1.0;
        const Term here = squeeze(slice(vectors, 2, state.counter, 1), {2});
        const Term v = select(equal(row, step), 1, select(greater(row, step), here, 0));
        const Term down = unsqueeze(v, {2});
        const Term across =
            reduce_sum(down * q, {1}, kKeep) * unsqueeze(slice(scale, 1, state.counter, 1), {2});
        return LoopStep{.condition = std::nullopt, .carried = {(q - down * across).id()}, .stacked = {}};
      });
  return restored({b, result.carried[0]}, s.outer, packed.dtype());
}

OrthogonalFactors<Term> orthogonal_factors(Term x, bool complete) {
  const Reflections<Term> h = reflections(widen(x));
  Builder& b = x.builder();
  const int64_t rank = x.rank();
  const sym::Expr m = x.dim(rank - 2);
  const sym::Expr rows = complete ? m : b.simplify(sym::min(m, x.dim(rank - 1)));
  return {cast(orthogonal(h.packed, h.scale, rows), x.dtype(), false),
          cast(triangle(slice(h.packed, rank - 2, 0, rows), 0, true), x.dtype(), false)};
}

TriangularFactors triangular_factors(Term given) {
  const Batch s = batch_of(given);
  Builder& b = given.builder();
  const sym::Expr batch = s.x.dim(0);
  const Term row = rows_of(b, s.m), column = columns_of(b, s.n);
  const LoopResult result = loop(b, s.k, std::nullopt, {s.x.id()}, [&](const LoopState& state) {
    const Term a(b, state.carried[0]), step(b, state.counter_value);
    const Term here = squeeze(slice(a, 2, state.counter, 1), {2});  // [batch, m]
    const Term best = arg_max(select(greater_equal(row, step), abs(here), -1), 1), at = unsqueeze(best, {1});
    const Term order = select(equal(row, step), at, select(equal(row, at), step, row));
    const Term moved = gather(a, order, 1, 1);
    const Term pivot_row = slice(moved, 1, state.counter, 1), pivot = slice(pivot_row, 2, state.counter, 1);
    const Term below = unsqueeze(greater(row, step), {2}), first = slice(moved, 2, state.counter, 1);
    const Term factor = first / select(equal(pivot, 0), 1, pivot);
    const Term next =
        select(logical_and(below, equal(column, step)), factor,
               select(logical_and(below, greater(column, step)), moved - factor * pivot_row, moved));
    return LoopStep{.condition = std::nullopt,
                    .carried = {next.id()},
                    .stacked = {reshape(cast(best + 1.0, DType::kI32), {batch}).id()}};
  });
  return {restored({b, result.carried[0]}, s.outer, given.dtype()),
          restored(transpose({b, result.stacked[0]}, 0, 1), s.outer, DType::kI32)};
}

Term lower_factor(Term packed) {
  const Batch s = batch_of(packed);
  const Term part = triangle(slice(s.x, 2, 0, s.k), 0, false);
  return restored(select(eye(packed.builder(), {s.m, s.k}, 0), 1, part), s.outer, packed.dtype());
}
Term upper_factor(Term packed) {
  const Batch s = batch_of(packed);
  return restored(triangle(slice(s.x, 1, 0, s.k), 0, true), s.outer, packed.dtype());
}

Term exchanges(Term pivots, sym::Expr m, DType dtype) {
  Builder& b = pivots.builder();
  const int64_t rank = pivots.rank();
  const Shape outer(pivots.shape().begin(), pivots.shape().end() - 1);
  const sym::Expr batch = count(outer), k = pivots.dim(rank - 1);
  const Term all = cast(reshape(pivots, {batch, k}), DType::kI64) - 1.0, row = rows_of(b, m);
  const LoopResult result =
      loop(b, k, std::nullopt, {expand(row, {batch, m}).id()}, [&](const LoopState& state) {
        const Term order(b, state.carried[0]), step(b, state.counter_value);
        const Term at = slice(all, 1, state.counter, 1);
        const Term from = select(equal(row, step), at, select(equal(row, at), step, row));
        return LoopStep{
            .condition = std::nullopt, .carried = {gather(order, from, 1, 1).id()}, .stacked = {}};
      });
  const Term order(b, result.carried[0]);
  const Term p = equal(index_along(b, {1, m, 1}, 1, DType::kI64), unsqueeze(order, {1}));
  return restored(cast(p, dtype), outer, dtype);
}

SingularValues<Term> singular_values(Term given) {
  const Batch s = batch_of(given);
  Builder& b = given.builder();
  const DType dtype = s.x.dtype();
  const sym::Expr batch = s.x.dim(0);
  const Term scale = largest_or_one(s), unit = s.x / scale;
  const double eps = machine_epsilon(dtype);
  // Rotations of the columns of R, which has as many rows as columns or fewer.
  const Term r = orthogonal_factors(unit, false).r;
  const std::vector<Term> ends = run_rotations(
      b, s.n, {r, identity(s, s.n, s.n)}, 4 * eps, [&](const Round& round, const std::vector<Term>& own) {
        const Term other = gather(own[0], round.partner, 2);
        const Term squares = reduce_sum(square(own[0]), {1}), theirs = gather(squares, round.partner, 1);
        const Term product = select(equal(round.partner, index_along(b, {s.n}, 0, DType::kI64)), 0,
                                    reduce_sum(own[0] * other, {1}));
        const Rotation turn = rotation(squares, theirs, product, round.first);
        const Term least = reduce_max(squares, {1}, kKeep) * eps;
        const Term size = maximum(sqrt(squares) * sqrt(theirs), least);
        return Rotated{{rotated(own[0], turn, round.partner, 2), rotated(own[1], turn, round.partner, 2)},
                       abs(product) / select(greater(size, 0), size, 1)};
      });
  const Ordered sorted = sort(sqrt(reduce_sum(square(ends[0]), {1})), 1, true);
  const Term right = gather(ends[1], sorted.indices, 2, 1);
  const Term values = slice(sorted.values, 1, 0, s.k) * reshape(scale, {batch, 1});
  return {restored(values, s.outer, given.dtype()), restored(right, s.outer, dtype),
          restored(matmul(s.x, right), s.outer, dtype)};
}

Term pseudo_inverse(const SingularValues<Term>& s, Term cutoff, DType dtype) {
  const Term values = widen(s.values);
  const int64_t last = values.rank() - 1;
  const sym::Expr k = values.dim(last);
  const Term kept = greater(values, unsqueeze(cutoff, {cutoff.rank()}));
  const Term inverse = unsqueeze(select(kept, divide_into(1, values), 0), {last});  // [..., 1, k]
  const auto first = [&](Term t) { return slice(t, t.rank() - 1, 0, k) * inverse; };
  return cast(matmul(first(s.right), last_two_swapped(first(s.scaled))), dtype, false);
}

SingularVectors<Term> singular_vectors(const SingularValues<Term>& s, bool full, DType dtype) {
  const OrthogonalFactors<Term> f = orthogonal_factors(s.scaled, full);
  const int64_t last = s.right.rank() - 1;
  const Term right = full ? s.right : slice(s.right, last, 0, s.values.dim(last - 1));
  return {cast(select(negative_columns(f.r), -f.q, f.q), dtype, false), cast(right, dtype, false)};
}

Term symmetric(Term x, bool upper) {
  const Term kept = triangle(x, 0, upper);
  const int64_t rank = x.rank();
  return select(eye(x.builder(), {x.dim(rank - 2), x.dim(rank - 1)}, 0), kept, kept + last_two_swapped(kept));
}

HermitianEigenvalues<Term> symmetric_eigenvalues(Term given) {
  const Batch s = square_batch_of(given);
  Builder& b = given.builder();
  const DType dtype = s.x.dtype();
  const sym::Expr batch = s.x.dim(0), n = s.n;
  const Term scale = largest_or_one(s);
  const Term index = index_along(b, {n}, 0, DType::kI64), on = eye(b, {n, n}, 0);
  const auto diagonal = [&](Term a) { return reduce_sum(select(on, a, 0), {1}); };
  const std::vector<Term> ends = run_rotations(
      b, n, {s.x / scale, identity(s, n, n)}, machine_epsilon(dtype) / 2,
      [&](const Round& round, const std::vector<Term>& own) {
        const Term a = own[0], squares = diagonal(a), theirs = gather(squares, round.partner, 1);
        const Term met = equal(index_along(b, {n, 1}, 0, DType::kI64), unsqueeze(round.partner, {0}));
        // Rounding makes the two products of a pair differ. Both columns turn by their mean: with equal
        // eigenvalues, angles that differ at all may be of opposite signs.
        const Term one = reduce_sum(select(met, a, 0), {1}),
                   both = (one + gather(one, round.partner, 1)) * 0.5;
        const Term product = select(equal(round.partner, index), 0, both);
        const Rotation turn = rotation(squares, theirs, product, round.first);
        const Term half = rotated(a, turn, round.partner, 2);
        return Rotated{{rotated(half, turn, round.partner, 1), rotated(own[1], turn, round.partner, 2)},
                       abs(product)};
      });
  const Ordered sorted = sort(diagonal(ends[0]), 1);
  return {restored(sorted.values * reshape(scale, {batch, 1}), s.outer, given.dtype()),
          restored(gather(ends[1], sorted.indices, 2, 1), s.outer, given.dtype())};
}

EigenPairs eigenvalues(Term x, bool complex, bool vectors) {
  Builder& b = x.builder();
  const std::vector<ValueId> out =
      add_call(b, "eigen", {widen(x).id()}, {{"complex", int64_t{complex}}, {"vectors", int64_t{vectors}}});
  EigenPairs pairs{{b, out[0]}, std::nullopt};
  if (vectors) pairs.vectors = Term(b, out[1]);
  return pairs;
}

LeastSquares least_squares(Term a, Term b, Term part) {
  const SingularValues<Term> s = singular_values(a);
  const Term values = widen(s.values);
  const int64_t last = values.rank() - 1;
  const Term cutoff = maximum(reduce_max(values, {last}), 0) * cast(part, values.dtype(), false);
  const Term rank = reduce_sum(cast(greater(values, unsqueeze(cutoff, {last})), DType::kI64), {last});
  return {matmul(pseudo_inverse(s, cutoff, a.dtype()), b), rank, s.values};
}

Term matrix_exponential(Term given) {
  const Batch s = square_batch_of(given);
  Builder& b = given.builder();
  const DType dtype = s.x.dtype();
  const sym::Expr batch = s.x.dim(0);
  const Term size = reduce_max(reduce_sum(abs(s.x), {1}), {1});  // [batch], the 1-norm
  constexpr double kLn2 = 0.693147180559945309417, kMost = 1100;
  const Term halvings =
      select(less_equal(size, 0.5), 0, minimum(apply(OpKind::kCeil, log(size) / kLn2) + 1.0, kMost));
  const Term small = s.x * reshape(exp(halvings * -kLn2), {batch, 1, 1}), one = identity(s, s.n, s.n);
  // Taylor's polynomial: of a norm up to 1/2 the rest is below the rounding of f64.
  Term y = one;
  for (int k = dtype == DType::kF64 ? 14 : 8; k >= 1; --k) y = one + matmul(small, y) * (1.0 / k);
  const Term most = reduce_max(halvings, {0});
  const LoopResult result =
      loop(b, static_cast<int64_t>(kMost), greater(most, 0).id(), {y.id()}, [&](const LoopState& state) {
        const Term at(b, state.carried[0]), step = cast(Term(b, state.counter_value), dtype);
        const Term squared = select(less(step, reshape(halvings, {batch, 1, 1})), matmul(at, at), at);
        return LoopStep{.condition = less(step + 1.0, most).id(), .carried = {squared.id()}, .stacked = {}};
      });
  return restored({b, result.carried[0]}, s.outer, given.dtype());
}

}  // namespace stridec::ops
