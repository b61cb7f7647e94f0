// The discrete Fourier transform: a library routine, and Bluestein's algorithm for lengths with large prime
// factors.
#include <numbers>

#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred fourier_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  const Type &x = b.type(node.inputs[0]), &waves = b.type(node.inputs[1]);
  if ((x.dtype != DType::kF32 && x.dtype != DType::kF64) || waves.dtype != x.dtype)
    does_not_fit("fourier: signal and waves are both f32 or both f64");
  const size_t rank = x.shape.size();
  if (rank < 2 || waves.shape.size() != 2) does_not_fit("fourier: a signal [..., n, 2] and waves [n, 2]");
  for (size_t d : {0, 1})
    b.require(sym::eq(x.shape[rank - 2 + d], waves.shape[d]), "fourier: a signal of {0} and waves of {1}",
              {x.shape[rank - 2 + d], waves.shape[d]});
  b.require(sym::eq(waves.shape[1], 2), "fourier: a complex number has {0} parts instead of 2",
            {waves.shape[1]});
  return {{x}, {}};
}

// fourier: x, waves -> y; rows, n, backward
void fourier_lower(Lowering& l, const Node& node) {
  loop::Call call{.routine = "fourier", .reads = {}, .writes = {}, .arguments = {}, .nodes = {}};
  for (ValueId input : node.inputs)
    call.reads.push_back(l.materialise(l.view(input), "fourier_input").buffer);
  const loop::View to = l.define(node.outputs[0]);
  call.writes = {to.buffer};
  const size_t rank = to.shape.size();
  call.arguments = {sym::product({to.shape.data(), rank - 2}), to.shape[rank - 2],
                    node.attributes.integer("backward")};
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

// The matrix is symmetric, so its adjoint is its conjugate, which is the transform in the other direction.
Ids fourier_gradient(Builder& b, const Node& node, const Ids& outputs) {
  return {b.add1(OpKind::kFourier, {outputs[0], node.inputs[1]},
                 {{"backward", 1 - node.attributes.integer("backward")}})};
}

// e^(2 pi i k / n) as [..., 2] for k in [0, n). Angles are reduced to at most pi / 4, so that values of 0, 1
// and -1 are exact and mirrored angles give equal values.
Term turns(Term k, sym::Expr n, DType type) {
  Builder& b = k.builder();
  const Term whole = size_as(b, DType::kI64, n);
  const Term quarter = k * 4.0 / whole, rest = k * 4.0 - quarter * whole;
  const Term beyond = greater(rest * 2.0, whole);
  const Term angle = cast(select(beyond, whole - rest, rest), DType::kF64) * (std::numbers::pi / 2) /
                     size_as(b, DType::kF64, n);
  const Term near = cast(apply(OpKind::kCos, angle), type), far = cast(apply(OpKind::kSin, angle), type);
  const Term c = select(beyond, far, near), s = select(beyond, near, far);
  const auto is = [&](int64_t q) { return equal(quarter, static_cast<double>(q)); };
  const Term re = select(is(0), c, select(is(1), -s, select(is(2), -c, s)));
  const Term im = select(is(0), s, select(is(1), c, select(is(2), -s, -c)));
  return concat({unsqueeze(re, {k.rank()}), unsqueeze(im, {k.rank()})}, k.rank());
}

Term all_indices(Builder& b, sym::Expr n) { return index_along(b, {n}, 0, DType::kI64); }

// Mixed-radix transform by the factors of n.
Term composite_fourier(Term x, bool backward) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(x.rank() - 2);
  const Term waves = turns(all_indices(b, n), n, x.dtype());
  return {b, b.add1(OpKind::kFourier, {x, waves}, {{"backward", int64_t{backward}}})};
}

// Relative cost, and the smallest length of at least n with no prime factor above 11, as in pocketfft.
double cost(int64_t n) {
  double sum = 0;
  const int64_t whole = n;
  for (; n % 2 == 0; n /= 2) sum += 2;
  for (int64_t d = 3; d * d <= n; d += 2)
    for (; n % d == 0; n /= d) sum += d <= 5 ? static_cast<double>(d) : 1.1 * static_cast<double>(d);
  if (n > 1) sum += n <= 5 ? static_cast<double>(n) : 1.1 * static_cast<double>(n);
  return sum * static_cast<double>(whole);
}
int64_t good_length(int64_t n) {
  for (;; ++n) {
    int64_t rest = n;
    for (int64_t d : {2, 3, 5, 7, 11})
      while (rest % d == 0) rest /= d;
    if (rest == 1) return n;
  }
}

// x [..., n, 2] times w [n, 2] or its conjugate (complex multiplication).
Term times(Term x, Term w, bool conjugate) {
  const int64_t last = x.rank() - 1;
  const auto part = [](Term t, int64_t i) { return slice(t, t.rank() - 1, i, 1); };
  const Term a = part(x, 0), b = part(x, 1), c = part(w, 0), s = conjugate ? -part(w, 1) : part(w, 1);
  return concat({a * c - b * s, a * s + b * c}, last);
}

// Expresses the transform as a convolution with a chirp (L. I. Bluestein, A Linear Filtering Approach to the
// Computation of the Discrete Fourier Transform, 1970). The convolution multiplies transforms of a length
// without large prime factors.
Term chirp_fourier(Term x, int64_t n, int64_t longer, bool backward) {
  Builder& b = x.builder();
  const auto chirp = [&](Term m) {
    return turns(apply(OpKind::kMod, m * m, static_cast<double>(2 * n)), 2 * n, x.dtype());
  };
  const Term at = all_indices(b, longer), place = minimum(at, subtract_from(static_cast<double>(longer), at));
  const Term inside = unsqueeze(less(place, static_cast<double>(n)), {1});
  const Term filter = composite_fourier(
      select(inside, chirp(minimum(place, static_cast<double>(n - 1))) / static_cast<double>(longer), 0.0),
      false);
  const Term turn = chirp(all_indices(b, n));
  const auto rows = static_cast<size_t>(x.rank());
  Shape none(rows, 0), after(rows, 0);
  after[rows - 2] = longer - n;
  Term y = composite_fourier(pad(times(x, turn, !backward), none, after, 0), false);
  y = composite_fourier(times(y, filter, backward), true);
  return times(slice(y, x.rank() - 2, 0, n), turn, !backward);
}

}  // namespace

const OpDef def_kFourier{
    fourier_shape, fourier_lower,
    Gradient::by(fourier_gradient, "x: fourier(g) of the other direction", "waves are constants")};

Term fourier(Term x, bool backward) {
  if (const auto n = sym::as_const(x.builder().simplify(x.dim(x.rank() - 2))); n && *n >= 50) {
    const int64_t longer = good_length(2 * *n - 1);
    if (3 * cost(longer) < cost(*n)) return chirp_fourier(x, *n, longer, backward);
  }
  return composite_fourier(x, backward);
}

}  // namespace stridec::ops
