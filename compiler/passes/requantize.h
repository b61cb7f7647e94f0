// Simplifies the arithmetic between integers and QuantizeLinear: sums of integers with constant scales and
// shifts.
//
//   round((float(i) * s + t + float(j - zero) * u) / v)
//   = round(float(i) * (s / v) + float(j) * (u / v) + (t - zero * u) / v)
//
// This leaves one multiplication and one addition per term, and no division. The factors are rounded once,
// from exact values. The result differs by f32 rounding, which `round` limits to 0 or 1 steps, as in QLinear
// operators. A value that is quantised again with its own scale and zero point is unchanged. So is a value
// that was only selected in between, by position (views, gathers) or as the maximum of a window.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void requantize(graph::Graph& graph);

}  // namespace stridec::passes
