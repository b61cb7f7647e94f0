// Compositions as a frontend without ONNX's rules calls them: parameters that are missing, masks, messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/ops/composite/attention.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/shape.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

constexpr double kEpsilon = 1e-5;

// (x - mean) / sqrt(variance + epsilon), with the statistics of the elements for which `same` holds.
HostTensor standardized(const HostTensor& x, const std::function<bool(const At&, const At&)>& same) {
  return compute(DType::kF32, x.shape, [&](const At& i) {
    double sum = 0, squares = 0, n = 0;
    for_each(x.shape, [&](const At& j) {
      if (!same(i, j)) return;
      sum += at(x, j), squares += at(x, j) * at(x, j), n += 1;
    });
    const double mean = sum / n;
    return (at(x, i) - mean) / std::sqrt(squares / n - mean * mean + kEpsilon);
  });
}

}  // namespace

TEST_CASE("composites: layer normalisation with and without scale and bias") {
  const HostTensor x = sample(DType::kF32, {2, 3, 4}), scale = sample(DType::kF32, {4}, 2),
                   bias = sample(DType::kF32, {3, 4}, 3);
  const HostTensor plain =
      standardized(x, [](const At& i, const At& j) { return i[0] == j[0] && i[1] == j[1]; });
  const HostTensor both = compute(DType::kF32, x.shape, [&](const At& i) {
    return at(plain, i) * at(scale, {i[2]}) + at(bias, {i[1], i[2]});
  });
  check({.name = "layer_norm",
         .inputs = {x, scale, bias},
         .build = [](Builder& b, const Ids& in) -> Ids {
           const Term t(b, in[0]), s(b, in[1]), add(b, in[2]);
           return {ops::layer_norm(t, {2}, {}, {}, kEpsilon).value,
                   ops::layer_norm(t, {2}, s, add, kEpsilon).value};
         },
         .expected = {plain, both}});
}

TEST_CASE("composites: normalisation of channels without scale and bias") {
  const HostTensor x = sample(DType::kF32, {2, 4, 3});
  const auto channel = [](const At& i, const At& j) { return i[1] == j[1]; };
  const auto plane = [](const At& i, const At& j) { return i[0] == j[0] && i[1] == j[1]; };
  const auto group = [](const At& i, const At& j) { return i[0] == j[0] && i[1] / 2 == j[1] / 2; };
  check({.name = "channels",
         .inputs = {x},
         .build = [](Builder& b, const Ids& in) -> Ids {
           const Term t(b, in[0]);
           return {ops::batch_norm_training(t, {}, {}, kEpsilon).value,
                   ops::instance_norm(t, {}, {}, kEpsilon),
                   ops::group_norm(t, {}, {}, {.groups = 2, .epsilon = kEpsilon})};
         },
         .expected = {standardized(x, channel), standardized(x, plane), standardized(x, group)}});
}

TEST_CASE("composites: a parameter of the wrong length is named") {
  const Case c{.name = "batch_norm",
               .inputs = {sample(DType::kF32, {2, 4, 3}), sample(DType::kF32, {4}), sample(DType::kF32, {3})},
               .build = [](Builder& b, const Ids& in) -> Ids {
                 const Term x(b, in[0]), good(b, in[1]), bad(b, in[2]);
                 return {ops::batch_norm(x, good, good, bad, good, kEpsilon)};
               },
               .expected = {sample(DType::kF32, {2, 4, 3})}};
  for (bool symbolic : {false, true})
    CHECK(failure(c, symbolic).find("the mean has 3 numbers for 4 channels") != std::string::npos);
}

TEST_CASE("composites: causal attention of heads that share keys") {
  const HostTensor q = sample(DType::kF32, {2, 4, 3, 5}), k = sample(DType::kF32, {2, 2, 3, 5}, 2),
                   v = sample(DType::kF32, {2, 2, 3, 2}, 3);
  const HostTensor expected = compute(DType::kF32, {2, 4, 3, 2}, [&](const At& i) {
    double total = 0, sum = 0;
    for (int64_t t = 0; t <= i[2]; ++t) {
      double score = 0;
      for (int64_t d = 0; d < 5; ++d) score += at(q, {i[0], i[1], i[2], d}) * at(k, {i[0], i[1] / 2, t, d});
      const double weight = std::exp(score / std::sqrt(5.0));
      total += weight, sum += weight * at(v, {i[0], i[1] / 2, t, i[3]});
    }
    return sum / total;
  });
  check({.name = "attend",
         .inputs = {q, k, v},
         .build = [](Builder& b, const Ids& in) -> Ids {
           const Term query(b, in[0]), key(b, in[1]), value(b, in[2]);
           const Term allowed = ops::causal_mask(b, query.dim(2), key.dim(2), 0);
           return {ops::attend(query, key, value, {.allowed = allowed}).value};
         },
         .expected = {expected},
         .tolerance = 1e-5,
         .fixed = {0, 1, 2}});
}

TEST_CASE("composites: what negative amounts leave repeats") {
  for (const DType dtype : {DType::kF32, DType::kBool})
    for (const auto& [before, after] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {-1, 2}, {2, -3}, {-1, 7}, {-2, -1}}) {
      const HostTensor x =
          dtype == DType::kBool ? tensor(dtype, {2, 4}, {0, 1, 1, 0, 1, 1, 0, 0}) : sample(dtype, {2, 4});
      const int64_t first = std::max<int64_t>(-before, 0), left = 4 - first - std::max<int64_t>(-after, 0);
      check({.name = "wrap",
             .inputs = {x},
             .build = [before, after](Builder& b, const Ids& in) -> Ids {
               return {ops::wrap(Term(b, in[0]), {0, before}, {0, after}).id()};
             },
             .expected = {compute(dtype, {2, 4 + before + after}, [&](const At& i) {
               const int64_t k = i[1] - std::max<int64_t>(before, 0);
               return at(x, {i[0], first + ((k % left) + left) % left});
             })}});
    }
}
