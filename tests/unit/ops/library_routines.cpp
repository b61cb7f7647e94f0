// Draws of PyTorch's generator on GPUs, and eigenvalues, as routines of the library.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "compiler/base/text.h"
#include "compiler/loop/philox.h"
#include "compiler/ops/call.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/factorization.h"
#include "compiler/ops/nodes.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

struct Draw {
  int64_t what, count, layout, seed, offset, threads;
};

HostTensor integers(const std::vector<int64_t>& values) {
  HostTensor out = loop::make_tensor(DType::kI64, {std::ssize(values)});
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

// PyTorch's kernels as they run: each thread of the grid takes its elements turn by turn.
std::vector<int64_t> drawn(const Draw& d) {
  const bool wide = d.what == philox::kWideWords;
  const int64_t lanes = wide ? 2 : 4, run = std::abs(d.layout);
  int64_t blocks = (d.count + 255) / 256;
  if (d.layout >= 0 && d.threads) blocks = std::min(blocks, d.threads / 256);
  const int64_t threads = blocks * 256;
  std::vector<int64_t> out(static_cast<size_t>(d.count));
  for (int64_t thread = 0; thread < threads; ++thread) {
    uint64_t call = static_cast<uint64_t>(d.offset) / 4;
    const auto block = [&] {
      return philox::block(static_cast<uint64_t>(d.seed), static_cast<uint64_t>(thread), call++);
    };
    const auto word = [&](const philox::Block& b, int64_t lane) {
      return wide ? static_cast<int64_t>(uint64_t{b.word[2 * lane]} << 32 | b.word[2 * lane + 1])
                  : int64_t{b.word[lane]};
    };
    if (d.layout == 0) {
      for (int64_t first = thread; first < d.count; first += threads * lanes) {
        const philox::Block b = block();
        for (int64_t lane = 0; lane < lanes; ++lane)
          if (first + threads * lane < d.count)
            out[static_cast<size_t>(first + threads * lane)] = word(b, lane);
      }
      continue;
    }
    for (int64_t first = thread * run; first < d.count; first += threads * run)
      for (int64_t part = 0; part < run; part += 4) {
        const philox::Block b = block();
        for (int64_t i = part; i < std::min(part + 4, run) && first + i < d.count; ++i)
          out[static_cast<size_t>(first + i)] = word(b, i - part);
      }
  }
  return out;
}

void check_draw(const Draw& d, int64_t advance) {
  check({.name = cat("draw ", d.what, " of ", d.count, ", layout ", d.layout, ", threads ", d.threads),
         .inputs = {integers({d.seed, d.offset, d.threads}), sample(DType::kF32, {d.count})},
         .build =
             [=](Builder& b, const Ids& in) {
               Ids out = ops::add_call(b, "philox_draw", {in[0]},
                                       {{"what", sym::Expr(d.what)},
                                        {"count", b.shape(in[1])[0]},
                                        {"layout", sym::Expr(d.layout)}});
               out.push_back(in[1]);
               return out;
             },
         .expected = {integers(drawn(d)), integers({d.seed, d.offset + advance, d.threads}),
                      sample(DType::kF32, {d.count})},
         .fixed = {0}});
}

Term product(Term re_a, Term im_a, Term re_b, Term im_b, bool imaginary) {
  return imaginary ? ops::matmul(re_a, im_b) + ops::matmul(im_a, re_b)
                   : ops::matmul(re_a, re_b) - ops::matmul(im_a, im_b);
}

// x v - v diag(values), and the squared norms of the vectors.
Ids residual(Builder& b, ValueId x, bool complex) {
  const Term given(b, x);
  const ops::EigenPairs e = ops::eigenvalues(given, complex, true);
  const auto part = [](Term t, int64_t i) {
    return ops::squeeze(ops::slice(t, t.rank() - 1, i, 1), {t.rank() - 1});
  };
  const Term re = complex ? part(given, 0) : given, im = complex ? part(given, 1) : given * 0.0;
  const Term vr = part(*e.vectors, 0), vi = part(*e.vectors, 1);
  const Term lr = ops::unsqueeze(part(e.values, 0), {1}), li = ops::unsqueeze(part(e.values, 1), {1});
  const Term alone = ops::eigenvalues(given, complex, false).values;
  return {product(re, im, vr, vi, false) - (vr * lr - vi * li),
          product(re, im, vr, vi, true) - (vr * li + vi * lr),
          ops::reduce_sum(ops::square(vr) + ops::square(vi), {1}), alone - e.values};
}

void check_eigenvalues(const char* name, const HostTensor& x, bool complex, double tolerance) {
  const int64_t batch = x.shape[0], n = x.shape[1];
  const auto filled = [&](std::vector<int64_t> shape, double value) {
    return compute(x.dtype, std::move(shape), [&](const At&) { return value; });
  };
  check({.name = cat(name, " of ", n),
         .inputs = {x},
         .build = [=](Builder& b, const Ids& in) { return residual(b, in[0], complex); },
         .expected = {filled({batch, n, n}, 0), filled({batch, n, n}, 0), filled({batch, n}, 1),
                      filled({batch, n, 2}, 0)},
         .tolerance = tolerance});
}

}  // namespace

TEST_CASE("philox_draw: words go to elements as in PyTorch's kernels") {
  for (const int64_t what : {0, 1})
    for (const int64_t count : {1, 5, 256, 300, 1023, 5000}) {
      const int64_t lanes = what ? 2 : 4, threads = std::min<int64_t>((count + 255) / 256 * 256, 512);
      check_draw({what, count, 0, 67280421310721, 8, 512}, ((count - 1) / (threads * lanes) + 1) * 4);
    }
  for (const int64_t run : {2, 4, 8})
    for (const int64_t count : {2, 40, 5000})
      check_draw({0, count, run, -3, 4, 512},
                 ((count - 1) / (std::min<int64_t>((count + 255) / 256 * 256, 512) * 4) + 1) * 4);
  check_draw({0, 4000, -4, 1, 0, 512}, 12);
  check_draw({0, 0, 0, 1, 4, 512}, 0);
  // The Random123 distribution's known answers for counter 0 and key 0.
  check({.name = "known words",
         .inputs = {integers({0, 0, 256})},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{ops::add_call(
                   b, "philox_draw", {in[0]},
                   {{"what", sym::Expr(0)}, {"count", sym::Expr(4)}, {"layout", sym::Expr(4)}})[0]};
             },
         .expected = {integers({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8})},
         .fixed = {0}});
}

namespace {

struct ExactMath {
  static double log(double x) { return std::log(x); }
  static double sin(double x) { return std::sin(x); }
  static double cos(double x) { return std::cos(x); }
  static double sqrt(double x) { return std::sqrt(x); }
};

void check_numbers(int64_t what, DType dtype, double (*number)(const philox::Block& block, int lane)) {
  constexpr int64_t kCount = 3000;
  const int64_t state[] = {77, 12, 512};
  const philox::Deal deal(state, what, kCount, 0);
  check({.name = cat("numbers of kind ", what),
         .inputs = {integers({77, 12, 512}), sample(DType::kF32, {kCount})},
         .build =
             [=](Builder& b, const Ids& in) {
               return Ids{ops::add_call(b, "philox_draw", {in[0]},
                                        {{"what", sym::Expr(what)},
                                         {"count", b.shape(in[1])[0]},
                                         {"layout", sym::Expr(0)}})[0],
                          in[1]};
             },
         .expected = {compute(dtype, {kCount},
                              [&](const At& o) {
                                const philox::Place place = deal.place(o[0]);
                                return number(philox::block_of(state, place), place.lane);
                              }),
                      sample(DType::kF32, {kCount})},
         .tolerance = dtype == DType::kF32 ? 1e-5 : 1e-12,  // a GPU has fast functions
         .fixed = {0}});
}

}  // namespace

TEST_CASE("philox_draw: numbers of each distribution, whatever computes them") {
  using philox::Block;
  check_numbers(philox::kNormals, DType::kF32,
                [](const Block& b, int lane) { return double(philox::normal<ExactMath>(b, lane)); });
  check_numbers(philox::kWideNormals, DType::kF64,
                [](const Block& b, int lane) { return philox::wide_normal<ExactMath>(b, lane); });
  check_numbers(philox::kLogarithms, DType::kF32,
                [](const Block& b, int lane) { return double(philox::logarithm<ExactMath>(b, lane)); });
  check_numbers(philox::kExponentials, DType::kF32, [](const Block& b, int lane) {
    return double(philox::negative_logarithm<ExactMath>(b, lane));
  });
  // The uniforms 1 and 1 - 2^-24, whose logarithms PyTorch takes as half an epsilon.
  CHECK(philox::negative_logarithm<ExactMath>({{0xFFFFFFFFu, 0, 0, 0}}, 0) == -0x1p-24f);
  CHECK(philox::negative_logarithm<ExactMath>({{0xFFFFFF00u, 0, 0, 0}}, 0) == -0x1p-24f);
  CHECK(philox::negative_logarithm<ExactMath>({{0xFFFFFE00u, 0, 0, 0}}, 0) < -0x1p-24f);
}

TEST_CASE("eigen: vectors of norm 1 and their values, of every kind of matrix") {
  for (const int64_t n : {0, 1, 2, 3, 4, 7, 12}) {
    const HostTensor x = sample_in(DType::kF64, {2, n, n}, -2, 2);
    check_eigenvalues("real", x, false, 1e-11);
    check_eigenvalues("complex", sample_in(DType::kF64, {2, n, n, 2}, -2, 2), true, 1e-11);
    check_eigenvalues("f32", sample_in(DType::kF32, {2, n, n}, -2, 2), false, 2e-5);
    check_eigenvalues("zeros", compute(DType::kF64, {2, n, n}, [](const At&) { return 0.0; }), false, 0);
    const auto made = [&](const char* name, double (*element)(const At& o, int64_t n)) {
      check_eigenvalues(name, compute(DType::kF64, {1, n, n}, [&](const At& o) { return element(o, n); }),
                        false, 1e-11);
    };
    made("one block of Jordan",
         [](const At& o, int64_t) { return o[2] == o[1] + 1 || o[2] == o[1] ? 1.0 : 0.0; });
    made("cyclic shift", [](const At& o, int64_t size) { return o[2] == (o[1] + 1) % size ? 1.0 : 0.0; });
    made("all equal", [](const At&, int64_t) { return 3.0; });
    made("skew", [](const At& o, int64_t) { return std::sin(double(o[1] - o[2])); });
    made("graded",
         [](const At& o, int64_t) { return std::exp2(-4.0 * double(o[1])) * (1 + double(o[2] % 3)); });
  }
  check({.name = "not finite",
         .inputs = {tensor(DType::kF32, {2, 2, 2}, {1, INFINITY, 0, 1, NAN, 0, 0, 1})},
         .build = [](Builder& b,
                     const Ids& in) { return Ids{ops::eigenvalues(Term(b, in[0]), false, false).values}; },
         .expected = {tensor(DType::kF32, {2, 2, 2}, std::vector<double>(8, NAN))}});
  // A pair of conjugates: the positive imaginary part is first, and the largest element of a vector is real.
  const double r = std::sqrt(0.5);
  check({.name = "a quarter turn",
         .inputs = {tensor(DType::kF64, {2, 2}, {0, 1, -1, 0})},
         .build =
             [](Builder& b, const Ids& in) {
               const ops::EigenPairs e = ops::eigenvalues(Term(b, in[0]), false, true);
               return Ids{e.values, *e.vectors};
             },
         .expected = {tensor(DType::kF64, {2, 2}, {0, 1, 0, -1}),
                      tensor(DType::kF64, {2, 2, 2}, {r, 0, r, 0, 0, r, 0, -r})}});
  CHECK(failure({.name = "not square",
                 .inputs = {sample(DType::kF32, {2, 3})},
                 .build =
                     [](Builder& b, const Ids& in) {
                       return Ids{ops::eigenvalues(Term(b, in[0]), false, false).values};
                     },
                 .expected = {}},
                false)
            .find("is not square") != std::string::npos);
}
