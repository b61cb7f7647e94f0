// Replaces long size expressions that depend on run-time values by symbols, so that shapes stay short.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/graph/builder.h"

namespace stridec::ops {

// Upper bound of a size known only at run time.
inline constexpr int64_t kLargestSize = int64_t{1} << 40;

// Largest number of nodes of an expression that stays as it is.
inline constexpr uint32_t kShort = 12;

// A symbol in [lower, upper] that the run binds to the value of `e`. Returns `e` itself if it has at most
// `most_nodes` nodes, or if it depends on inputs' sizes alone.
sym::Expr named(graph::Builder& b, sym::Expr e, const std::string& hint, sym::Expr lower, sym::Expr upper,
                uint32_t most_nodes = kShort);
// The same for the sizes of a shape.
graph::Shape named(graph::Builder& b, graph::Shape shape, const std::string& hint);

}  // namespace stridec::ops
