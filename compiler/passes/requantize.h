// What lies between integers and QuantizeLinear: sums of integers with constant scales and shifts.
//
//   round((float(i) * s + t + float(j - zero) * u) / v)
//   = round(float(i) * (s / v) + float(j) * (u / v) + (t - zero * u) / v)
//
// One product and one sum for each of them, and no division. The factors are rounded once, from exact numbers: the
// result differs by rounding of f32, which `round` makes 0 or 1 steps, as in QLinear operators. A number that is
// quantised again with its own scale and zero point is itself; so is one that was picked on the way, by its place
// (views, gathers) or as the largest of a window.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void requantize(graph::Graph& graph);

}  // namespace stridec::passes
