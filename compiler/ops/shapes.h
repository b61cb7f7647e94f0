// Helpers of shape functions: broadcasting, dims, dtype checks, and arithmetic on known elements.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

using graph::Attributes;
using graph::Builder;
using graph::Inferred;
using graph::Node;
using graph::OpKind;
using graph::Shape;
using graph::Type;
using graph::ValueId;
using Elements = std::vector<sym::Expr>;

// NumPy broadcasting of two or more shapes. If two symbolic dims may differ and either may be 1, the result
// is select(a == 1, b, a), and a guard checks that they are equal or one of them is 1.
Shape broadcast(Builder& builder, const std::vector<Shape>& shapes, const std::string& what);
// Sorts `dims` of a tensor of `rank`; negative dims count from the end. Duplicates are an error.
std::vector<int64_t> normal_dims(std::vector<int64_t> dims, int rank, const std::string& what);
int64_t normal_dim(int64_t dim, int rank, const std::string& what);

// The attribute `key` as a dim of a tensor of this rank, counted from the front.
size_t dim_attribute(const Node& node, const char* key, size_t rank);

sym::Expr element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // [batch, 3, 224]

// Throw kDoesNotFit errors about a node's inputs: "matmul: ...".
[[noreturn]] void does_not_fit(const std::string& message);
void expect_inputs(const Node& node, size_t low, size_t high);
void expect_same_dtype(Builder& builder, const Node& node, size_t a, size_t b);
// Checks that the dims are equal; adds a guard if that is not known.
void expect_equal(Builder& builder, sym::Expr a, sym::Expr b, const std::string& sentence);
// size / by; a guard checks that there is no remainder. `what` says what is divided: "columns".
sym::Expr divided(Builder& builder, sym::Expr size, sym::Expr by, const std::string& what);

// Known elements of a result of `shape`, computed by `element` from the coordinate. None if `shape` is not
// constant or has more than kMaxElements elements, or if `element` returns none.
using Coordinates = std::vector<int64_t>;
std::optional<std::vector<int64_t>> constant_shape(const Shape& shape);
std::optional<Elements> map_elements(
    const Shape& shape, const std::function<std::optional<sym::Expr>(const Coordinates& at)>& element);
int64_t flat_index(const Coordinates& at, const std::vector<int64_t>& shape);
// The element of a tensor of `shape`. None outside of it, which only a loop body that never runs asks for.
std::optional<sym::Expr> element_at(const Elements& elements, const Coordinates& at,
                                    const std::vector<int64_t>& shape);

}  // namespace stridec::ops
