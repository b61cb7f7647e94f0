// Counts by bins and reductions of segments, of numbers at the edges, outside of them, and none.
#include "compiler/ops/composite/histogram.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostTensor f32(const std::vector<double>& values) {
  return tensor(DType::kF32, {static_cast<int64_t>(values.size())}, values);
}
HostTensor i64(const std::vector<double>& values) {
  return tensor(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

}  // namespace

TEST_CASE("bins: the last one has its upper edge, and what is outside does not count") {
  const HostTensor x = f32({0, 0.5, 1, 2, 3.5, 4, -0.1, 4.1, kNan, kInf});
  check({.name = "equal bins",
         .inputs = {x},
         .build =
             [](Builder& b, const Ids& in) {
               const Term t(b, in[0]);
               return Ids{ops::equal_bins(t, {ops::number_like(t, 0), ops::number_like(t, 4)}, 4)};
             },
         .expected = {i64({2, 1, 1, 2})}});
  const auto counts = [](bool density) {
    return [=](Builder& b, const Ids& in) {
      return Ids{ops::histogram({Term(b, in[0])}, {Term(b, in[1])}, Term(b, in[2]), density)};
    };
  };
  const HostTensor edges = f32({0, 1, 4}), weight = f32({1, 2, 4, 8, 16, 32, 64, 128, 256, 512});
  check(
      {.name = "weights", .inputs = {x, edges, weight}, .build = counts(false), .expected = {f32({3, 60})}});
  check({.name = "density",
         .inputs = {x, edges, weight},
         .build = counts(true),
         .expected = {f32({3 / 63., 60 / 63. / 3})}});
  check({.name = "no samples",
         .inputs = {f32({}), edges, f32({})},
         .build = counts(false),
         .expected = {f32({0, 0})}});
}

TEST_CASE("bins: bounds of the data, and cells of two dims") {
  check({.name = "bounds",
         .inputs = {f32({3, 3, 3})},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{ops::edges_between(ops::apart(ops::bounds_of(Term(b, in[0])), 0.5), 2)};
             },
         .expected = {f32({2.5, 3, 3.5})}});
  check({.name = "cells",
         .inputs = {f32({0, 1, 1, 2}), f32({0, 0, 5, 10}), f32({0, 1, 2}), f32({0, 5, 10})},
         .build =
             [](Builder& b, const Ids& in) {
               const auto at = [&](size_t i) { return Term(b, in[i]); };
               return Ids{ops::histogram({at(0), at(1)}, {at(2), at(3)}, std::nullopt, false)};
             },
         .expected = {tensor(DType::kF32, {2, 2}, {1, 0, 1, 2})}});
}

TEST_CASE("segments: of several lengths, of none, with and without an initial value") {
  using ops::SegmentReduction;
  struct Form {
    SegmentReduction how;
    std::optional<double> initial;
    std::vector<double> expected;
  };
  const Form kForms[] = {
      {SegmentReduction::kSum, {}, {3, 0, 3}},        {SegmentReduction::kMean, {}, {1.5, kNan, 3}},
      {SegmentReduction::kMean, 6, {4.5, 6, 9}},      {SegmentReduction::kMax, {}, {2, -kInf, 3}},
      {SegmentReduction::kMin, 0.5, {0.5, 0.5, 0.5}}, {SegmentReduction::kProd, {}, {2, 1, 3}}};
  for (const Form& f : kForms)
    check({.name = "segments",
           .inputs = {tensor(DType::kF32, {4, 2}, {1, 1, 2, 2, 3, 3, 9, 9}), i64({0, 2, 2}), i64({2, 2, 3})},
           .build =
               [&](Builder& b, const Ids& in) {
                 return Ids{
                     ops::segments(Term(b, in[0]), Term(b, in[1]), Term(b, in[2]), 0, f.how, f.initial)};
               },
           .expected = {compute(DType::kF32, {3, 2},
                                [&](const At& o) { return f.expected[static_cast<size_t>(o[0])]; })}});
}
