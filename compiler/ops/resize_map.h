// What resize and its transpose share: the source coordinates of an axis and the weights of its samples.
//
// Every source coordinate is a rational number x = numerator / denominator over index expressions. floor(x)
// is therefore exact index arithmetic for any size; only the weights are floats.
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/lowering.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops::resizing {

struct Axis {
  size_t dim;
  sym::Expr in, out, p, q;  // scale = p / q
  sym::Expr start_p = 0, start_q = 1, end_p = 1, end_q = 1;
};
// The resized dims. `in_sizes`: of them, or empty: those of `from`.
std::vector<Axis> axes(const Node& node, const Shape& from, const std::vector<sym::Expr>& in_sizes = {});

// x = numerator / denominator, denominator > 0.
struct Coordinate {
  sym::Expr numerator, denominator;
};

Coordinate coordinate(const std::string& mode, const Axis& axis, sym::Expr o);
// The coordinate whose floor is the sample that nearest takes.
Coordinate nearest_coordinate(const std::string& rounding, const Coordinate& x);
sym::Expr nearest_index(const std::string& rounding, const Coordinate& x);
sym::Expr clamp(sym::Expr i, sym::Expr size);

// The input samples of one axis that contribute to an output: their indices and weights.
struct Taps {
  std::vector<sym::Expr> index;
  std::vector<loop::Value> weight;
};

struct Resampler {
  loop::NestBuilder& n;
  const Node& node;
  DType dtype;  // of weights and sums

  loop::Value number(double value) { return n.constant(dtype, value); }
  loop::Value number(sym::Expr e) {
    return e.is_const() ? number(static_cast<double>(e.value())) : n.index_value(e, dtype);
  }
  bool cubic() const { return node.attributes.text("mode") == "cubic"; }
  loop::Value kernel(loop::Value d);
  loop::Value weigh(loop::Value sample, loop::Value weight);
  loop::Value fraction(const Coordinate& x);
  loop::Value unless_outside(loop::Value weight, sym::Expr index, sym::Expr size);
  Taps taps(const Axis& axis, const Coordinate& x);
};

// One axis of an antialiased resize: the kernel is stretched by 1 / scale. Sample k, of `count`, has the
// index `first` + k before clamping.
struct Stretched {
  sym::Expr first, start, count;
  loop::Value fraction, scale;
};
Stretched stretched(Resampler& r, const Axis& axis, sym::Expr o);
loop::Value weight_of(Resampler& r, const Stretched& s, const Axis& axis, sym::Expr k);

}  // namespace stridec::ops::resizing
