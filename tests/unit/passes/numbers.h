// Constants and comparisons for tests of passes.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

namespace stridec::test {

inline loop::HostTensor drawn(DType dtype, const std::vector<int64_t>& shape, unsigned seed) {
  loop::HostTensor t = loop::make_tensor(dtype, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> number(-1, 1);
  std::uniform_int_distribution<int> integer(is_signed(dtype) ? -128 : 0, is_signed(dtype) ? 127 : 255);
  for (int64_t i = 0; i < loop::element_count(t); ++i)
    loop::set_number(t, i, is_float(dtype) ? number(random) : integer(random));
  return t;
}

inline ops::Term drawn_constant(graph::Builder& b, DType dtype, const std::vector<int64_t>& shape,
                                unsigned seed) {
  return {b, b.constant("", {dtype, graph::Shape(shape.begin(), shape.end())},
                        graph::own(drawn(dtype, shape, seed).bytes))};
}

// The largest difference between the first outputs, relative to the largest magnitude.
inline double difference(const graph::Graph& x, const graph::Graph& y,
                         const std::vector<loop::HostTensor>& inputs) {
  const auto a = loop::interpret(ops::lower(x), inputs), b = loop::interpret(ops::lower(y), inputs);
  REQUIRE(a[0].shape == b[0].shape);
  REQUIRE(a[0].dtype == b[0].dtype);
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < loop::element_count(a[0]); ++i) {
    worst = std::max(worst, std::abs(loop::get_number(a[0], i) - loop::get_number(b[0], i)));
    largest = std::max(largest, std::abs(loop::get_number(a[0], i)));
  }
  return worst / largest;
}

inline int count(const graph::Graph& g, graph::OpKind kind, DType of_first_input) {
  int n = 0;
  for (const graph::Node& node : g.nodes)
    n += node.kind == kind && !node.inputs.empty() && g[node.inputs[0]].type.dtype == of_first_input;
  return n;
}

}  // namespace stridec::test
