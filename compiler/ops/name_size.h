// Names for what only the run can compute: shapes stay short where long expressions become symbols.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/graph/builder.h"

namespace stridec::ops {

// A size that only the run tells is at most this.
inline constexpr int64_t kLargestSize = int64_t{1} << 40;

// Nodes of an expression that is short.
inline constexpr uint32_t kShort = 12;

// A symbol in [lower, upper] that the run binds to the value of `e`; `e` itself where it is short, and where inputs alone
// decide it.
sym::Expr named(graph::Builder& b, sym::Expr e, const std::string& hint, sym::Expr lower, sym::Expr upper,
                uint32_t most_nodes = kShort);
// The same for the sizes of a shape.
graph::Shape named(graph::Builder& b, graph::Shape shape, const std::string& hint);

}  // namespace stridec::ops
