#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ops/composite.h"
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
  // Two trees: 0 -> (1, 2), a leaf alone (3). Node 0 asks about feature 1.
  for (int64_t mode = 0; mode < 6; ++mode)
    for (bool missing : {false, true})
      for (bool uniform : {false, true}) {
        const HostTensor x = tensor(DType::kF32, {4, 2}, {9, 0.5, 9, 1, 9, 2, 9, std::nan("")});
        const auto goes = [&](double v) {
          const bool answers[] = {v <= 1, v<1, v >= 1, v> 1, v == 1, v != 1};
          return answers[mode] || (std::isnan(v) && missing);
        };
        check({.name = "tree_walk",
               .inputs = {x, tensor(DType::kI64, {4}, {1, 0, 0, 0}), tensor(DType::kF32, {4}, {1, 0, 0, 0}),
                          tensor(DType::kU8, {4}, {static_cast<double>(mode), 0, 0, 0}),
                          tensor(DType::kI64, {4}, {1, 1, 2, 3}), tensor(DType::kI64, {4}, {2, 1, 2, 3}),
                          tensor(DType::kBool, {4}, {missing ? 1.0 : 0.0, 0, 0, 0}),
                          tensor(DType::kI64, {2}, {0, 3})},
               .build =
                   [=](Builder& b, const Ids& in) {
                     return Ids{b.add1(OpKind::kTreeWalk, in,
                                       {{"depth", int64_t{2}}, {"mode", uniform ? mode : int64_t{-1}}})};
                   },
               .expected = {compute(DType::kI64, {4, 2}, [&](const At& o) {
                 return o[1] == 1 ? 3.0 : goes(at(x, {o[0], 1})) ? 1.0 : 2.0;
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
  // Low x, low y, high x, high y of four boxes in a row: the second covers the first, the third touches neither; the
  // fourth is the third again.
  const HostTensor corners =
      tensor(DType::kF32, {2, 4, 4}, {0, 0, 5, 5, 0, 0, 5, 5, 2, 2, 7, 7, 2, 3, 7, 7,  //
                                      0, 0, 5, 5, 0, 0, 5, 5, 2, 2, 7, 7, 2, 3, 7, 7});
  const auto kept = [&](const std::vector<double>& eligible, double most, double overlap,
                        const std::vector<double>& expected) {
    check({.name = "suppress",
           .inputs = {corners, tensor(DType::kBool, {2, 4}, eligible), tensor(DType::kI64, {}, {most}),
                      tensor(DType::kF32, {}, {overlap})},
           .build =
               [](Builder& b, const Ids& in) {
                 return b.add(OpKind::kSuppress, {in[0], in[1], in[2], in[3]});
               },
           .expected = {tensor(DType::kBool, {2, 4}, expected)}});
  };
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 9, 0.5, {1, 0, 1, 0, 1, 0, 1, 0});
  kept({1, 1, 1, 1, 0, 1, 0, 1}, 9, 0.5, {1, 0, 1, 0, 0, 1, 0, 1});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 9, 0.8, {1, 1, 1, 0, 1, 1, 1, 0});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 1, 0.8, {1, 0, 0, 0, 1, 0, 0, 0});
  kept({1, 1, 1, 1, 1, 1, 1, 1}, 0, 0.5, {0, 0, 0, 0, 0, 0, 0, 0});
}
