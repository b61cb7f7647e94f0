// Axes known only at run time.
#include "compiler/ops/axes.h"

#include <doctest/doctest.h>

#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

const HostTensor kX = sample(DType::kF32, {2, 3, 4});

ops::Axes told(Builder& b, ValueId axes, int64_t rank) {
  return ops::axes_of(b, b.elements_of(axes, "axes", -rank, rank - 1), rank);
}

HostTensor axes_tensor(const std::vector<double>& values) {
  return tensor(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

// The sum over these dims, kept with size 1.
HostTensor sums(const std::vector<int64_t>& dims) {
  std::vector<int64_t> shape = kX.shape;
  for (int64_t d : dims) shape[static_cast<size_t>(d)] = 1;
  return compute(DType::kF32, shape, [&](const At& i) {
    double sum = 0;
    for_each(kX.shape, [&](const At& j) {
      bool same = true;
      for (size_t d = 0; d < i.size(); ++d) same = same && (shape[d] == 1 || i[d] == j[d]);
      if (same) sum += at(kX, j);
    });
    return sum;
  });
}

Ids sum_along(Builder& b, const Ids& in) {
  const Term x(b, in[0]);
  const ops::Axes axes = told(b, in[1], 3);
  const Term sum = ops::reduce_sum(ops::apart(x, axes), {3, 4, 5});
  return {sum, ops::reshape(sum, ops::without(x.shape(), axes))};
}

}  // namespace

TEST_CASE("axes: a reduction along axes that the run tells") {
  struct Row {
    std::vector<double> given;
    std::vector<int64_t> dims;
  };
  for (const Row& row : std::vector<Row>{{{0}, {0}},
                                         {{-1}, {2}},
                                         {{1}, {1}},
                                         {{2, 0}, {0, 2}},
                                         {{-2, 2}, {1, 2}},
                                         {{1, -1, 0}, {0, 1, 2}}}) {
    const HostTensor kept = sums(row.dims);
    HostTensor squeezed = kept;
    squeezed.shape.clear();
    for (size_t d = 0; d < 3; ++d)
      if (std::find(row.dims.begin(), row.dims.end(), static_cast<int64_t>(d)) == row.dims.end())
        squeezed.shape.push_back(kX.shape[d]);
    check({.name = "sum",
           .inputs = {kX, axes_tensor(row.given)},
           .build = sum_along,
           .expected = {kept, squeezed},
           .fixed = {1}});
  }
}

TEST_CASE("axes: split dims are joined again, also with another size along the axis") {
  for (const double axis : {0, 1, -1}) {
    const auto dim = static_cast<size_t>(axis < 0 ? axis + 3 : axis);
    std::vector<int64_t> shape = kX.shape;
    shape[dim] = 2;
    check({.name = "apart and together",
           .inputs = {kX, axes_tensor({axis})},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term x(b, in[0]);
                 const ops::Axes axes = told(b, in[1], 3);
                 const Term parts = ops::apart(x, axes);
                 graph::Shape rows(parts.shape().begin(), parts.shape().begin() + 3), two = rows;
                 rows.push_back(axes.pick_size(x.shape()));
                 const Term short_rows = ops::slice(ops::reshape(parts, rows), 3, 0, 2);
                 for (int64_t d = 0; d < 3; ++d) two.push_back(sym::select(axes.has(d), 2, 1));
                 return Ids{ops::together(parts, axes), ops::together(ops::reshape(short_rows, two), axes)};
               },
           .expected = {kX, compute(DType::kF32, shape, [&](const At& i) { return at(kX, i); })},
           .fixed = {1}});
  }
}

TEST_CASE("axes: ones between dims where the run tells") {
  struct Row {
    std::vector<double> given;
    std::vector<int64_t> shape;
  };
  for (const Row& row :
       std::vector<Row>{{{0, 1}, {1, 1, 2, 3, 4}}, {{-1, 2}, {2, 3, 1, 4, 1}}, {{4, 3}, {2, 3, 4, 1, 1}}}) {
    HostTensor y = kX;
    y.shape = row.shape;
    check({.name = "between ones",
           .inputs = {kX, axes_tensor(row.given)},
           .build =
               [](Builder& b, const Ids& in) {
                 const Term x(b, in[0]);
                 return Ids{ops::reshape(x, ops::between_ones(x.shape(), told(b, in[1], 5)))};
               },
           .expected = {y},
           .fixed = {1}});
  }
}

TEST_CASE("axes: what does not fit is said when the run gets there") {
  const auto failing = [](const std::vector<double>& axes) {
    return failure(
        {.name = "axes", .inputs = {kX, axes_tensor(axes)}, .build = sum_along, .expected = {}, .fixed = {1}},
        false);
  };
  CHECK(failing({3}).find("axes is 3, outside -3..2") != std::string::npos);
  CHECK(failing({-4, 0}).find("axes is -4, outside -3..2") != std::string::npos);
  CHECK(failing({1, -2}).find("is given twice") != std::string::npos);
}
