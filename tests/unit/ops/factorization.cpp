// Factors multiply to the matrix that they are of, for sizes from 0, wide and tall, of full rank and not.
#include "compiler/ops/composite/factorization.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/creation.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

struct Size {
  int64_t m, n;
};
constexpr Size kSizes[] = {{0, 0}, {1, 1}, {2, 2}, {5, 5}, {6, 6}, {5, 3}, {3, 5}, {1, 4}};

HostTensor identity(DType dtype, int64_t batch, int64_t n) {
  return compute(dtype, {batch, n, n}, [](const At& o) { return o[1] == o[2] ? 1.0 : 0.0; });
}
HostTensor zeros(DType dtype, const std::vector<int64_t>& shape) {
  return compute(dtype, shape, [](const At&) { return 0.0; });
}
Term swapped(Term x) { return ops::transpose(x, x.rank() - 2, x.rank() - 1); }
Term scaled_columns(Term x, Term by) { return x * ops::unsqueeze(by, {1}); }
// The last column is the first one again: the rank is less than full.
HostTensor deficient(DType dtype, int64_t m, int64_t n) {
  const HostTensor x = sample_in(dtype, {2, m, n}, -2, 2);
  return compute(dtype, x.shape, [&](const At& o) { return at(x, {o[0], o[1], o[2] == n - 1 ? 0 : o[2]}); });
}

}  // namespace

TEST_CASE("orthogonal factors: columns of norm 1, a triangle, and signs of LAPACK") {
  for (const Size& s : kSizes) {
    for (const bool complete : {false, true}) {
      const HostTensor x = sample_in(DType::kF64, {2, s.m, s.n}, -2, 2);
      const int64_t k = complete ? s.m : std::min(s.m, s.n);
      check({.name = "qr",
             .inputs = {x},
             .build =
                 [=](Builder& b, const Ids& in) {
                   const auto f = ops::orthogonal_factors(Term(b, in[0]), complete);
                   return Ids{ops::matmul(f.q, f.r), ops::matmul(swapped(f.q), f.q),
                              f.r - ops::triangle(f.r, 0, true)};
                 },
             .expected = {x, identity(DType::kF64, 2, k), zeros(DType::kF64, {2, k, s.n})},
             .tolerance = 1e-10});
    }
  }
  check({.name = "signs",
         .inputs = {tensor(DType::kF64, {2, 2}, {3, 1, 4, 2})},
         .build = [](Builder& b,
                     const Ids& in) { return Ids{ops::orthogonal_factors(Term(b, in[0]), false).r}; },
         .expected = {tensor(DType::kF64, {2, 2}, {-5, -2.2, 0, 0.4})},
         .tolerance = 1e-12});
}

TEST_CASE("triangular factors: the rows are exchanged for the largest pivots") {
  for (const Size& s : kSizes) {
    const HostTensor x = sample_in(DType::kF64, {2, s.m, s.n}, -2, 2);
    check({.name = "lu",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term t(b, in[0]);
                 const auto f = ops::triangular_factors(t);
                 const Term p = ops::exchanges(f.pivots, t.dim(1), t.dtype());
                 return Ids{
                     ops::matmul(p, ops::matmul(ops::lower_factor(f.packed), ops::upper_factor(f.packed)))};
               },
           .expected = {x},
           .tolerance = 1e-10});
  }
  check(
      {.name = "pivots of a singular matrix",
       .inputs = {tensor(DType::kF32, {3, 3}, {0, 0, 1, 0, 0, 2, 5, 0, 3})},
       .build = [](Builder& b, const Ids& in) { return Ids{ops::triangular_factors(Term(b, in[0])).pivots}; },
       .expected = {tensor(DType::kI32, {3}, {3, 2, 3})}});
}

TEST_CASE("singular values: pseudo-inverses of full and lower rank") {
  for (const Size& s : kSizes) {
    if (s.m == 0) continue;
    const HostTensor x = deficient(DType::kF64, s.m, s.n);
    check({.name = "x x+ x",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term t(b, in[0]);
                 const auto v = ops::singular_values(t);
                 const Term inverse = ops::pseudo_inverse(v, ops::number(b, t.dtype(), 1e-9), t.dtype());
                 return Ids{ops::matmul(t, ops::matmul(inverse, t)), ops::matmul(swapped(v.right), v.right)};
               },
           .expected = {x, identity(DType::kF64, 2, s.n)},
           .tolerance = 1e-9});
  }
  check({.name = "values",
         .inputs = {tensor(DType::kF32, {2, 2, 3}, {3, 0, 0, 0, -4, 0, 0, 0, 0, 0, 0, 0})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::singular_values(Term(b, in[0])).values}; },
         .expected = {tensor(DType::kF32, {2, 2}, {4, 3, 0, 0})},
         .tolerance = 1e-6});
}

TEST_CASE("eigenvalues of symmetric matrices, equal ones too") {
  for (int64_t n : {0, 1, 2, 5, 6}) {
    const HostTensor x = sample_in(DType::kF64, {2, n, n}, -2, 2);
    const HostTensor whole = compute(DType::kF64, x.shape, [&](const At& o) {
      return at(x, {o[0], std::max(o[1], o[2]), std::min(o[1], o[2])});
    });
    check({.name = "v w v^T",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const auto e = ops::symmetric_eigenvalues(ops::symmetric(Term(b, in[0]), false));
                 return Ids{ops::matmul(scaled_columns(e.vectors, e.values), swapped(e.vectors)),
                            ops::matmul(swapped(e.vectors), e.vectors)};
               },
           .expected = {whole, identity(DType::kF64, 2, n)},
           .tolerance = 1e-10});
  }
  check({.name = "values",
         .inputs = {tensor(DType::kF32, {3, 3}, {2, 1, 1, 1, 2, 1, 1, 1, 2})},
         .build = [](Builder& b,
                     const Ids& in) { return Ids{ops::symmetric_eigenvalues(Term(b, in[0])).values}; },
         .expected = {tensor(DType::kF32, {3}, {1, 1, 4})},
         .tolerance = 1e-5});
  // The real form of a Hermitian matrix has each eigenvalue twice.
  for (int64_t n : {3, 5}) {
    const HostTensor x = sample_in(DType::kF32, {2, n, n}, -2, 2);
    const HostTensor form = compute(DType::kF32, {2, 2 * n, 2 * n}, [&](const At& o) {
      const int64_t i = o[1] % n, j = o[2] % n;
      if ((o[1] < n) == (o[2] < n)) return at(x, {o[0], std::max(i, j), std::min(i, j)});
      if (i == j) return 0.0;
      return at(x, {o[0], std::min(i, j), std::max(i, j)}) * ((i < j) == (o[1] < n) ? 1 : -1);
    });
    check({.name = "pairs of equal values",
           .inputs = {form},
           .build =
               [](Builder& b, const Ids& in) {
                 const auto e = ops::symmetric_eigenvalues(Term(b, in[0]));
                 return Ids{ops::matmul(scaled_columns(e.vectors, e.values), swapped(e.vectors))};
               },
           .expected = {form},
           .tolerance = 1e-5});
  }
}

TEST_CASE("exponentials of matrices, small and large") {
  for (int64_t n : {0, 1, 3}) {
    const HostTensor x = sample_in(DType::kF64, {2, n, n}, -3, 3);
    check({.name = "exp(x) exp(-x)",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term t(b, in[0]);
                 return Ids{ops::matmul(ops::matrix_exponential(t), ops::matrix_exponential(-t))};
               },
           .expected = {identity(DType::kF64, 2, n)},
           .tolerance = 1e-8});
  }
  check({.name = "rotation",
         .inputs = {tensor(DType::kF32, {2, 2, 2}, {0, -1, 1, 0, 0, 0, 0, 5})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::matrix_exponential(Term(b, in[0]))}; },
         .expected = {tensor(DType::kF32, {2, 2, 2},
                             {std::cos(1), -std::sin(1), std::sin(1), std::cos(1), 1, 0, 0, std::exp(5)})},
         .tolerance = 1e-5});
}

namespace {

using ops::Complex;
Complex adjoint(const Complex& z) { return {swapped(z.re), -swapped(z.im)}; }
Complex times(const Complex& x, const Complex& y) {
  return {ops::matmul(x.re, y.re) - ops::matmul(x.im, y.im),
          ops::matmul(x.re, y.im) + ops::matmul(x.im, y.re)};
}
Complex scaled_columns(const Complex& x, Term by) {
  return {scaled_columns(x.re, by), scaled_columns(x.im, by)};
}
Ids parts(std::initializer_list<Complex> all) {
  Ids out;
  for (const Complex& z : all) out.insert(out.end(), {z.re.id(), z.im.id()});
  return out;
}
// Checks a function of the matrices re + i im whose results are complex and have the expected parts.
void check_complex(const char* name, const HostTensor& re, const HostTensor& im,
                   const std::function<Ids(const Complex&)>& build, std::vector<HostTensor> expected) {
  check({.name = name,
         .inputs = {re, im},
         .build = [&](Builder& b, const Ids& in) { return build({Term(b, in[0]), Term(b, in[1])}); },
         .expected = std::move(expected),
         .tolerance = re.dtype == DType::kF64 ? 1e-11 : 2e-5});
}

}  // namespace

TEST_CASE("complex factors: their products, and unit vectors, of full and lower rank") {
  for (DType dtype : {DType::kF32, DType::kF64})
    for (const auto [m, n] : kSizes)
      for (bool full_rank : {true, false}) {
        const int64_t k = std::min(m, n);
        const HostTensor re = full_rank ? sample_in(dtype, {2, m, n}, -2, 2) : deficient(dtype, m, n);
        const HostTensor im =
            full_rank
                ? compute(dtype, {2, m, n}, [&](const At& o) { return at(re, o) * (o[1] - o[2] - 0.5); })
                : zeros(dtype, {2, m, n});
        const HostTensor one = identity(dtype, 2, k), none = zeros(dtype, {2, k, k});
        check_complex("QR", re, im,
                      [](const Complex& z) {
                        const auto f = ops::orthogonal_factors(z, false);
                        return parts({times(f.q, f.r), times(adjoint(f.q), f.q)});
                      },
                      {re, im, one, none});
        check_complex("singular values", re, im,
                      [&](const Complex& z) {
                        const auto s = ops::singular_values(z);
                        return parts({times(s.scaled, adjoint(s.right)), times(adjoint(s.right), s.right)});
                      },
                      {re, im, identity(dtype, 2, n), zeros(dtype, {2, n, n})});
      }
}

TEST_CASE("eigenvalues of Hermitian matrices, equal ones too") {
  for (DType dtype : {DType::kF32, DType::kF64})
    for (int64_t n : {0, 1, 2, 5, 6})
      for (bool equal : {false, true}) {
        const HostTensor x = sample_in(dtype, {2, n, n}, -2, 2);
        // Equal ones: an orthogonal projection of rank 1, doubled, with phases.
        const auto phase = [](int64_t i) { return 0.7 * static_cast<double>(i); };
        const HostTensor re = compute(dtype, {2, n, n}, [&](const At& o) {
          return equal ? std::cos(phase(o[1]) - phase(o[2]))
                       : at(x, {o[0], std::max(o[1], o[2]), std::min(o[1], o[2])});
        });
        const HostTensor im = compute(dtype, {2, n, n}, [&](const At& o) {
          if (equal) return std::sin(phase(o[1]) - phase(o[2]));
          const double own = at(x, {o[0], std::min(o[1], o[2]), std::max(o[1], o[2])});
          return o[1] == o[2] ? 0.0 : o[1] < o[2] ? own : -own;
        });
        check_complex("values and vectors", re, im,
                      [](const Complex& z) {
                        const auto e = ops::symmetric_eigenvalues(z);
                        return parts({times(scaled_columns(e.vectors, e.values), adjoint(e.vectors)),
                                      times(adjoint(e.vectors), e.vectors)});
                      },
                      {re, im, identity(dtype, 2, n), zeros(dtype, {2, n, n})});
      }
}
