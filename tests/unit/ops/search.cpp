#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ops/call.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/helpers.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

namespace {

Case search_case(DType dtype, std::vector<double> keys, const HostTensor& x, bool right) {
  const int64_t n = static_cast<int64_t>(keys.size());
  return {.name = "search_sorted",
          .inputs = {tensor(dtype, {n}, keys), x},
          .build =
              [right](Builder& b, const Ids& in) {
                return Ids{b.add1(OpKind::kSearchSorted, {in[0], in[1]}, {{"right", int64_t{right}}})};
              },
          .expected = {compute(DType::kI64, x.shape, [&, right](const At& o) {
            const double v = at(x, o);
            return static_cast<double>(std::count_if(keys.begin(), keys.end(), [&](double k) {
              const bool below = std::isnan(v) ? !std::isnan(k) : k < v;
              return below || (right && (k == v || (std::isnan(k) && std::isnan(v))));
            }));
          })}};
}

}  // namespace

TEST_CASE("search_sorted counts what is below, NaN above all, in tables of any length") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (bool right : {false, true}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kI64, DType::kI32, DType::kU8, DType::kU64}) {
      const HostTensor x = tensor(dtype, {2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
      for (int64_t n : {0, 1, 2, 3, 7, 8, 9}) {
        std::vector<double> keys;
        for (int64_t i = 0; i < n; ++i) keys.push_back(static_cast<double>((i * 3) / 2));
        check(search_case(dtype, keys, x, right));
      }
      check(search_case(dtype, {1, 2, 2, 2, 5}, tensor(dtype, {0, 3}, {}), right));
    }
    check(search_case(DType::kF32, {-2, 0, 1.5, nan, nan},
                      tensor(DType::kF32, {5}, {nan, -3, 1.5, INFINITY, -INFINITY}), right));
  }
}

TEST_CASE("tree_walk ends at the leaf of every tree; NaN goes where the node says") {
  // Three trees: 3 -> (0, 1), a single leaf (2), 4 -> (0, 1). Nodes 3 and 4 test feature 1. Thresholds are in
  // the nodes (f32) or in a tensor of their own.
  const auto bits = [](bool set, int place) { return uint64_t{set} << place; };
  for (const int64_t equal : {0, 1, -1})
    for (const bool missing : {false, true})
      for (const DType dtype : {DType::kF32, DType::kF64})
        for (const bool apart : {false, true}) {
          if (!apart && dtype == DType::kF64) continue;
          const HostTensor x = tensor(dtype, {5, 2}, {9, 0.5, 9, 1, 9, 2, 9, std::nan(""), 9, -INFINITY});
          const double nan = std::nan("");
          const std::vector<double> thresholds{nan, nan, nan, 1, 0.5};
          const std::vector<uint64_t> no{0, 1, 2, 0, 0};
          const int child_at = apart ? 0 : 32, feature_at = child_at + 3;
          const auto is_equal = [=](int node) { return node == 3 ? equal != 0 : equal == 1; };
          HostTensor words = tensor(DType::kU64, {5}, {0, 0, 0, 0, 0});
          for (size_t i = 0; i < 5; ++i) {
            uint64_t word = no[i] << child_at | bits(i > 2, feature_at) |
                            bits(i > 2 && is_equal(static_cast<int>(i)), 62) | bits(missing && i == 4, 63);
            if (!apart) word |= std::bit_cast<uint32_t>(static_cast<float>(thresholds[i]));
            std::memcpy(words.bytes.data() + 8 * i, &word, 8);
          }
          std::vector<HostTensor> inputs{x, words, tensor(DType::kU32, {3}, {3, 2, 4})};
          if (apart) inputs.push_back(tensor(dtype, {5}, thresholds));
          check({.name = "tree_walk",
                 .inputs = inputs,
                 .build =
                     [=](Builder& b, const Ids& in) {
                       return Ids{b.add1(OpKind::kTreeWalk, in,
                                         {{"depth", int64_t{2}},
                                          {"feature_at", int64_t{feature_at}},
                                          {"equal", equal},
                                          {"missing", int64_t{missing}}})};
                     },
                 .expected = {compute(DType::kU32, {5, 3}, [&](const At& o) {
                   if (o[1] == 1) return 2.0;
                   const int node = o[1] == 0 ? 3 : 4;
                   const double v = at(x, {o[0], 1}), t = thresholds[static_cast<size_t>(node)];
                   const bool yes = is_equal(node) ? v == t : v <= t;
                   return yes || (std::isnan(v) && missing && node == 4) ? 1.0 : 0.0;
                 })}});
        }
}

TEST_CASE("determinants and inverses of any size, with row exchanges, singular ones too") {
  for (int64_t n : {0, 1, 2, 5, 6}) {
    HostTensor x = sample_in(DType::kF64, {3, n, n}, -2, 2);
    check({.name = "inverse times matrix",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const ops::Term m(b, in[0]);
                 return Ids{ops::matmul(m, ops::inverse(m))};
               },
           .expected = {compute(DType::kF64, x.shape, [](const At& o) { return o[1] == o[2] ? 1.0 : 0.0; })},
           .tolerance = 1e-8});
  }
  check({.name = "determinant",
         .inputs = {tensor(DType::kF32, {3, 3, 3}, {0, 2, 1, 1, 0, 0, 3, 1, 0, 1, 2, 3, 2, 4,
                                                    6, 1, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, -4})},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::determinant(ops::Term(b, in[0]))}; },
         .expected = {tensor(DType::kF32, {3}, {1, 0, -24})},
         .tolerance = 1e-5});
}

TEST_CASE("suppression keeps what overlaps no kept box before it") {
  // Low x, low y, high x, high y of four boxes: the second overlaps the first, the third overlaps neither,
  // the fourth equals the third.
  const HostTensor corners =
      tensor(DType::kF32, {2, 4, 4}, {0, 0, 5, 5, 0, 0, 5, 5, 2, 2, 7, 7, 2, 3, 7, 7,  //
                                      0, 0, 5, 5, 0, 0, 5, 5, 2, 2, 7, 7, 2, 3, 7, 7});
  const auto kept = [&](const std::vector<double>& eligible, double most, double overlap,
                        const std::vector<double>& expected) {
    check({.name = "suppress",
           .inputs = {corners, tensor(DType::kBool, {2, 4}, eligible), tensor(DType::kI64, {}, {most}),
                      tensor(DType::kF32, {}, {overlap})},
           .build = [](Builder& b, const Ids& in) { return ops::add_call(b, "suppress", in); },
           .expected = {tensor(DType::kBool, {2, 4}, expected)}});
  };
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 9, 0.5, {1, 0, 1, 0, 1, 0, 1, 0});
  kept({1, 1, 1, 1, 0, 1, 0, 1}, 9, 0.5, {1, 0, 1, 0, 0, 1, 0, 1});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 9, 0.8, {1, 1, 1, 0, 1, 1, 1, 0});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 1, 0.8, {1, 0, 0, 0, 1, 0, 0, 0});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 0, 0.5, {0, 0, 0, 0, 0, 0, 0, 0});
}
