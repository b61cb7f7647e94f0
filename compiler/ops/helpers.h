// Short names for building graphs, used by composites and frontends. Every function adds at most a few nodes
// through the Builder and throws what the nodes' shape functions throw.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

using graph::Builder;
using graph::Shape;
using graph::ValueId;

// -- pointwise (numpy broadcasting, equal dtypes)
ValueId unary(Builder& b, graph::OpKind kind, ValueId x);
ValueId binary(Builder& b, graph::OpKind kind, ValueId x, ValueId y);
ValueId neg(Builder& b, ValueId x);
ValueId abs(Builder& b, ValueId x);
ValueId sign(Builder& b, ValueId x);
ValueId floor(Builder& b, ValueId x);
ValueId ceil(Builder& b, ValueId x);
ValueId round(Builder& b, ValueId x);
ValueId sqrt(Builder& b, ValueId x);
ValueId rsqrt(Builder& b, ValueId x);
ValueId rcp(Builder& b, ValueId x);
ValueId exp(Builder& b, ValueId x);
ValueId expm1(Builder& b, ValueId x);
ValueId log(Builder& b, ValueId x);
ValueId log1p(Builder& b, ValueId x);
ValueId sin(Builder& b, ValueId x);
ValueId cos(Builder& b, ValueId x);
ValueId tanh(Builder& b, ValueId x);
ValueId erf(Builder& b, ValueId x);
ValueId sigmoid(Builder& b, ValueId x);
ValueId relu(Builder& b, ValueId x);
ValueId logical_not(Builder& b, ValueId x);
ValueId isnan(Builder& b, ValueId x);
ValueId add(Builder& b, ValueId x, ValueId y);
ValueId sub(Builder& b, ValueId x, ValueId y);
ValueId mul(Builder& b, ValueId x, ValueId y);
ValueId div(Builder& b, ValueId x, ValueId y);
ValueId pow(Builder& b, ValueId x, ValueId y);
ValueId minimum(Builder& b, ValueId x, ValueId y);
ValueId maximum(Builder& b, ValueId x, ValueId y);
ValueId logical_and(Builder& b, ValueId x, ValueId y);
ValueId logical_or(Builder& b, ValueId x, ValueId y);
ValueId eq(Builder& b, ValueId x, ValueId y);
ValueId ne(Builder& b, ValueId x, ValueId y);
ValueId lt(Builder& b, ValueId x, ValueId y);
ValueId le(Builder& b, ValueId x, ValueId y);
ValueId gt(Builder& b, ValueId x, ValueId y);
ValueId ge(Builder& b, ValueId x, ValueId y);
ValueId where(Builder& b, ValueId condition, ValueId x, ValueId y);
ValueId cast(Builder& b, ValueId x, DType to, bool saturate = false);
// A scalar constant of x's dtype.
ValueId like(Builder& b, ValueId x, double value);
ValueId add(Builder& b, ValueId x, double y);
ValueId sub(Builder& b, ValueId x, double y);
ValueId mul(Builder& b, ValueId x, double y);
ValueId div(Builder& b, ValueId x, double y);

// The dtype in which to compute on x: f32 for storage-only floats, x's own otherwise.
DType compute_dtype(DType dtype);
ValueId to_compute(Builder& b, ValueId x);

// -- reductions; negative dims count from the end, an empty list means all dims
ValueId reduce(Builder& b, graph::OpKind kind, ValueId x, std::vector<int64_t> dims, bool keep);
ValueId reduce_sum(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep = false);
ValueId reduce_prod(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep = false);
ValueId reduce_max(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep = false);
ValueId reduce_min(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep = false);
// Storage floats are summed and divided in f32; integers divide truncating.
ValueId reduce_mean(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep = false);

// -- sizes
int64_t normal_dim(Builder& b, ValueId x, int64_t dim);  // negative dims count from the end
sym::Expr dim(Builder& b, ValueId x, int64_t dim);       // size of the dim
ValueId size_tensor(Builder& b, const std::vector<sym::Expr>& sizes, DType dtype = DType::kI64);  // rank 1
ValueId size_scalar(Builder& b, sym::Expr size, DType dtype);  // rank 0 of any dtype

// -- views
ValueId reshape(Builder& b, ValueId x, Shape shape);
ValueId permute(Builder& b, ValueId x, std::vector<int64_t> order);
ValueId swap_dims(Builder& b, ValueId x, int64_t first, int64_t second);
ValueId unsqueeze(Builder& b, ValueId x, std::vector<int64_t> dims);  // dims of the result
ValueId squeeze(Builder& b, ValueId x, std::vector<int64_t> dims);    // a guard checks that their size is 1
ValueId flatten(Builder& b, ValueId x, int64_t first, int64_t last);  // merges dims first..last into one
ValueId expand(Builder& b, ValueId x, Shape shape);                   // the result has exactly this shape
ValueId broadcast_to(Builder& b, ValueId x, Shape shape);  // both operands stretch, as in ONNX's Expand
// x[..., start:start+extent*step:step, ...]; must be within bounds.
ValueId slice(Builder& b, ValueId x, int64_t dim, sym::Expr start, sym::Expr extent, int64_t step = 1);
// Slices as Python and ONNX do: negative bounds count from the end, out-of-range bounds are clamped.
ValueId slice_clamped(Builder& b, ValueId x, int64_t dim, sym::Expr start, sym::Expr end, int64_t step = 1);
ValueId flip(Builder& b, ValueId x, int64_t dim);
std::vector<ValueId> split(Builder& b, ValueId x, int64_t dim, const std::vector<sym::Expr>& sizes);
ValueId concat(Builder& b, const std::vector<ValueId>& parts, int64_t dim);
ValueId pad(Builder& b, ValueId x, std::vector<sym::Expr> before, std::vector<sym::Expr> after,
            std::optional<ValueId> value = {}, const std::string& mode = "constant");

// -- sources
ValueId iota(Builder& b, Shape shape, int64_t dim, DType dtype);
ValueId full(Builder& b, Shape shape, DType dtype, double value);

// -- contractions
struct DotDims {
  std::vector<int64_t> batch_a, batch_b, contract_a, contract_b;
  int64_t byte_blocks = 0;  // see loop::Reduce
};
// Result: batch dims, free dims of a, free dims of b. Accumulates in f32 for storage floats, i32 for 8-bit
// integers.
ValueId dot_general(Builder& b, ValueId x, ValueId y, const DotDims& dims, std::optional<DType> to = {});
ValueId matmul(Builder& b, ValueId x, ValueId y, std::optional<DType> to = {});  // numpy semantics

// -- indexing
ValueId gather(Builder& b, ValueId data, ValueId indices, int64_t dim, int64_t batch_dims = 0);

// -- control flow
using Branch = std::function<std::vector<ValueId>()>;
// Only the branch that the condition (a bool scalar) selects runs. If the condition is known, that branch is
// inlined. If the branches' results differ in rank, the branch whose ranks match the declared `ranks` (none:
// unknown) is inlined, and a guard checks that the condition selects it.
std::vector<ValueId> if_else(Builder& b, ValueId condition, const Branch& then_branch,
                             const Branch& else_branch,
                             const std::vector<std::optional<int64_t>>& ranks = {});

// The last step of if_else(): an If of two closed regions, or the one branch that the declared ranks select.
std::vector<ValueId> join_branches(Builder& b, sym::Expr condition, std::vector<graph::Region> regions,
                                   const Branch& then_branch, const Branch& else_branch,
                                   const std::vector<std::optional<int64_t>>& ranks);

// A trip count of at least this means "until the condition fails".
inline constexpr int64_t kUnbounded = int64_t{1} << 40;

struct LoopState {
  sym::Expr counter;  // 0, 1, ... as a size; counter_value is the same as an i64 scalar
  ValueId counter_value;
  std::vector<ValueId> carried;
};
struct LoopStep {
  std::optional<ValueId> condition;  // of the next iteration
  std::vector<ValueId> carried;      // same types as before
  std::vector<ValueId> stacked;      // one row of each stacked output
};
struct LoopResult {
  std::vector<ValueId> carried, stacked;
};
// Runs at most `trip_count` iterations. If `condition` is given, the first iteration also requires it.
// Without a bound on the trip count, memory of rows and of carried values that grow is extended during the
// run; such a carried value may grow along one dim only.
LoopResult loop(Builder& b, sym::Expr trip_count, std::optional<ValueId> condition,
                std::vector<ValueId> carried, const std::function<LoopStep(const LoopState&)>& body);

}  // namespace stridec::ops
