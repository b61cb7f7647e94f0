// Factors multiply to the matrix that they are of, for sizes from 0, wide and tall, of full rank and not.
#include "compiler/ops/composite/factorization.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

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
