#include "compiler/ops/helpers.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

ValueId unary(Builder& b, OpKind kind, ValueId x) { return b.add1(kind, {x}); }
ValueId binary(Builder& b, OpKind kind, ValueId x, ValueId y) { return b.add1(kind, {x, y}); }

#define STRIDEC_UNARY(function, kind) \
  ValueId function(Builder& b, ValueId x) { return b.add1(OpKind::kind, {x}); }
#define STRIDEC_BINARY(function, kind) \
  ValueId function(Builder& b, ValueId x, ValueId y) { return b.add1(OpKind::kind, {x, y}); }
STRIDEC_UNARY(neg, kNeg)
STRIDEC_UNARY(abs, kAbs)
STRIDEC_UNARY(sign, kSign)
STRIDEC_UNARY(floor, kFloor)
STRIDEC_UNARY(ceil, kCeil)
STRIDEC_UNARY(round, kRound)
STRIDEC_UNARY(sqrt, kSqrt)
STRIDEC_UNARY(rsqrt, kRsqrt)
STRIDEC_UNARY(rcp, kRcp)
STRIDEC_UNARY(exp, kExp)
STRIDEC_UNARY(expm1, kExpm1)
STRIDEC_UNARY(log, kLog)
STRIDEC_UNARY(log1p, kLog1p)
STRIDEC_UNARY(sin, kSin)
STRIDEC_UNARY(cos, kCos)
STRIDEC_UNARY(tanh, kTanh)
STRIDEC_UNARY(erf, kErf)
STRIDEC_UNARY(sigmoid, kSigmoid)
STRIDEC_UNARY(logical_not, kNot)
STRIDEC_UNARY(isnan, kIsNan)
STRIDEC_BINARY(add, kAdd)
STRIDEC_BINARY(sub, kSub)
STRIDEC_BINARY(mul, kMul)
STRIDEC_BINARY(div, kDiv)
STRIDEC_BINARY(pow, kPow)
STRIDEC_BINARY(minimum, kMin)
STRIDEC_BINARY(maximum, kMax)
STRIDEC_BINARY(logical_and, kAnd)
STRIDEC_BINARY(logical_or, kOr)
STRIDEC_BINARY(eq, kEq)
STRIDEC_BINARY(ne, kNe)
STRIDEC_BINARY(lt, kLt)
STRIDEC_BINARY(le, kLe)
#undef STRIDEC_UNARY
#undef STRIDEC_BINARY

ValueId gt(Builder& b, ValueId x, ValueId y) { return lt(b, y, x); }
ValueId ge(Builder& b, ValueId x, ValueId y) { return le(b, y, x); }
ValueId relu(Builder& b, ValueId x) {
  graph::Attributes attributes;
  if (is_float(b.dtype(x))) attributes.set("ties", std::string("second"));
  return b.add1(OpKind::kMax, {x, like(b, x, 0)}, std::move(attributes));
}
ValueId where(Builder& b, ValueId condition, ValueId x, ValueId y) {
  return b.add1(OpKind::kSelect, {condition, x, y});
}
ValueId cast(Builder& b, ValueId x, DType to, bool saturate) {
  graph::Attributes attributes{{"to", to}};
  // Out-of-range values become infinite in floats of more than 8 bits, as ONNX specifies.
  if (saturate && !(is_float(to) && info(to).bits > 8)) attributes.set("saturate", int64_t{1});
  return b.add1(OpKind::kCast, {x}, std::move(attributes));
}
ValueId like(Builder& b, ValueId x, double value) { return b.scalar(b.dtype(x), value); }
ValueId add(Builder& b, ValueId x, double y) { return add(b, x, like(b, x, y)); }
ValueId sub(Builder& b, ValueId x, double y) { return sub(b, x, like(b, x, y)); }
ValueId mul(Builder& b, ValueId x, double y) { return mul(b, x, like(b, x, y)); }
ValueId div(Builder& b, ValueId x, double y) { return div(b, x, like(b, x, y)); }

DType compute_dtype(DType dtype) { return is_storage_float(dtype) ? DType::kF32 : dtype; }
ValueId to_compute(Builder& b, ValueId x) { return cast(b, x, compute_dtype(b.dtype(x))); }

// ---- reductions ------------------------------------------------------------------------------------------

namespace {

std::vector<int64_t> all_or(Builder& b, ValueId x, std::vector<int64_t> dims) {
  if (!dims.empty()) return normal_dims(std::move(dims), b.rank(x), "a reduction");
  dims.resize(static_cast<size_t>(b.rank(x)));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

}  // namespace

ValueId reduce(Builder& b, OpKind kind, ValueId x, std::vector<int64_t> dims, bool keep) {
  dims = all_or(b, x, std::move(dims));
  Shape kept = b.shape(x);
  for (int64_t dim : dims) kept[static_cast<size_t>(dim)] = 1;
  const ValueId reduced = dims.empty() ? x : b.add1(kind, {x}, {{"dims", dims}});
  return keep ? reshape(b, reduced, kept) : reduced;
}
ValueId reduce_sum(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep) {
  return reduce(b, OpKind::kReduceSum, x, std::move(dims), keep);
}
ValueId reduce_prod(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep) {
  return reduce(b, OpKind::kReduceProd, x, std::move(dims), keep);
}
ValueId reduce_max(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep) {
  return reduce(b, OpKind::kReduceMax, x, std::move(dims), keep);
}
ValueId reduce_min(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep) {
  return reduce(b, OpKind::kReduceMin, x, std::move(dims), keep);
}
ValueId reduce_mean(Builder& b, ValueId x, std::vector<int64_t> dims, bool keep) {
  dims = all_or(b, x, std::move(dims));
  sym::Expr count = 1;
  for (int64_t dim : dims) count *= b.shape(x)[static_cast<size_t>(dim)];
  const DType dtype = b.dtype(x);
  const ValueId wide = to_compute(b, x);
  const ValueId sum = reduce_sum(b, wide, dims, keep);
  const ValueId mean = count.is_const() && is_float(dtype) && count.value() != 0
                           ? mul(b, sum, 1.0 / static_cast<double>(count.value()))
                           : div(b, sum, size_scalar(b, count, b.dtype(sum)));
  return cast(b, mean, dtype);
}

// ---- sizes -----------------------------------------------------------------------------------------------

int64_t normal_dim(Builder& b, ValueId x, int64_t dim) { return normal_dim(dim, b.rank(x), b.display(x)); }
sym::Expr dim(Builder& b, ValueId x, int64_t dim) {
  return b.shape(x)[static_cast<size_t>(normal_dim(b, x, dim))];
}
ValueId size_tensor(Builder& b, const std::vector<sym::Expr>& sizes, DType dtype) {
  return b.elements(sizes, {static_cast<int64_t>(sizes.size())}, dtype);
}
ValueId size_scalar(Builder& b, sym::Expr size, DType dtype) {
  constexpr int64_t kExact = int64_t{1} << 53;  // up to which f64 has all integers
  const bool exact = size.is_const() && size.value() >= -kExact && size.value() <= kExact;
  if (exact || (size.is_const() && is_float(dtype)))
    return b.scalar(dtype, static_cast<double>(size.value()));
  if (!is_float(dtype)) return b.elements({size}, {}, dtype);
  return cast(b, b.elements({size}, {}, DType::kI64), dtype);
}

// ---- views -----------------------------------------------------------------------------------------------

ValueId reshape(Builder& b, ValueId x, Shape shape) {
  return b.add1(OpKind::kReshape, {x}, {{"shape", std::move(shape)}});
}

ValueId permute(Builder& b, ValueId x, std::vector<int64_t> order) {
  for (int64_t& dim : order) dim = normal_dim(b, x, dim);
  return b.add1(OpKind::kPermute, {x}, {{"order", std::move(order)}});
}

ValueId swap_dims(Builder& b, ValueId x, int64_t first, int64_t second) {
  std::vector<int64_t> order(static_cast<size_t>(b.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(normal_dim(b, x, first))],
            order[static_cast<size_t>(normal_dim(b, x, second))]);
  return permute(b, x, std::move(order));
}

ValueId unsqueeze(Builder& b, ValueId x, std::vector<int64_t> dims) {
  const int rank = b.rank(x) + static_cast<int>(dims.size());
  Shape shape = b.shape(x);
  for (int64_t dim : normal_dims(std::move(dims), rank, "unsqueeze"))
    shape.insert(shape.begin() + dim, sym::Expr(1));
  return reshape(b, x, std::move(shape));
}

ValueId squeeze(Builder& b, ValueId x, std::vector<int64_t> dims) {
  dims = normal_dims(std::move(dims), b.rank(x), "squeeze");
  Shape shape;
  for (int64_t d = 0; d < b.rank(x); ++d) {
    const sym::Expr size = b.shape(x)[static_cast<size_t>(d)];
    if (std::find(dims.begin(), dims.end(), d) == dims.end())
      shape.push_back(size);
    else
      b.require(sym::eq(size, 1), cat("squeeze: dim ", d, " is {0}, not 1"), {size});
  }
  return reshape(b, x, std::move(shape));
}

ValueId flatten(Builder& b, ValueId x, int64_t first, int64_t last) {
  const Shape& from = b.shape(x);
  Shape shape(from.begin(), from.begin() + first);
  sym::Expr size = 1;
  for (int64_t d = first; d <= last; ++d) size *= from[static_cast<size_t>(d)];
  shape.push_back(size);
  shape.insert(shape.end(), from.begin() + last + 1, from.end());
  return reshape(b, x, std::move(shape));
}

ValueId expand(Builder& b, ValueId x, Shape shape) {
  return b.add1(OpKind::kExpand, {x}, {{"shape", std::move(shape)}});
}
ValueId broadcast_to(Builder& b, ValueId x, Shape shape) {
  return expand(b, x, broadcast(b, {b.shape(x), shape}, "expand"));
}

namespace {

ValueId slice_raw(Builder& b, ValueId x, size_t dim, sym::Expr start, sym::Expr extent, int64_t step) {
  const Shape& from = b.shape(x);
  std::vector<sym::Expr> starts(from.size(), 0), extents = from, steps(from.size(), 1);
  starts[dim] = start;
  extents[dim] = b.simplify(extent);
  steps[dim] = step;
  return b.add1(OpKind::kSlice, {x}, {{"starts", starts}, {"extents", extents}, {"steps", steps}});
}

}  // namespace

ValueId slice(Builder& b, ValueId x, int64_t dim, sym::Expr start, sym::Expr extent, int64_t step) {
  return slice_raw(b, x, static_cast<size_t>(normal_dim(b, x, dim)), start, extent, step);
}

ValueId slice_clamped(Builder& b, ValueId x, int64_t dim, sym::Expr start, sym::Expr end, int64_t step) {
  if (step == 0) does_not_fit("slice: the step is 0");
  const size_t d = static_cast<size_t>(normal_dim(b, x, dim));
  const sym::Expr size = b.shape(x)[d];
  auto from_end = [&](sym::Expr at) {
    if (b.holds(sym::ge(at, 0))) return at;
    // Frontends encode "to the end" as the smallest and largest integers; keep these out of size arithmetic.
    if (at.is_const() && at.value() < -(int64_t{1} << 40)) return at;
    if (b.holds(sym::lt(at, 0))) return at + size;
    return sym::select(sym::lt(at, 0), at + size, at);
  };
  auto clamp = [&](sym::Expr at, sym::Expr low, sym::Expr high) {
    if (at.is_const() && at.value() > (int64_t{1} << 40)) return high;
    if (at.is_const() && at.value() < -(int64_t{1} << 40)) return low;
    return b.simplify(sym::max(sym::min(at, high), low));
  };
  sym::Expr extent;
  if (step > 0) {
    start = clamp(from_end(start), 0, size);
    end = clamp(from_end(end), 0, size);
    extent = sym::ceildiv(end - start, step);
  } else {
    start = clamp(from_end(start), -1, size - 1);
    end = clamp(from_end(end), -1, size - 1);
    extent = sym::ceildiv(start - end, -step);
  }
  extent = b.simplify(extent);
  if (!b.holds(sym::ge(extent, 0))) extent = sym::max(extent, 0);
  return slice_raw(b, x, d, start, extent, step);
}

ValueId flip(Builder& b, ValueId x, int64_t dim) {
  const sym::Expr size = ops::dim(b, x, dim);
  return slice(b, x, dim, size - 1, size, -1);
}

std::vector<ValueId> split(Builder& b, ValueId x, int64_t dim, const std::vector<sym::Expr>& sizes) {
  const sym::Expr size = ops::dim(b, x, dim);
  const sym::Expr total = sym::sum(sizes);
  b.require(sym::eq(total, size), "split: the parts have {0} elements together, the dim {1}", {total, size});
  std::vector<ValueId> parts;
  sym::Expr start = 0;
  for (sym::Expr part : sizes) {
    parts.push_back(slice(b, x, dim, start, part));
    start += part;
  }
  return parts;
}

ValueId concat(Builder& b, const std::vector<ValueId>& parts, int64_t dim) {
  STRIDEC_CHECK(!parts.empty());
  return b.add1(OpKind::kConcat, parts, {{"dim", normal_dim(b, parts[0], dim)}});
}

ValueId pad(Builder& b, ValueId x, std::vector<sym::Expr> before, std::vector<sym::Expr> after,
            std::optional<ValueId> value, const std::string& mode) {
  std::vector<ValueId> inputs{x};
  if (value) inputs.push_back(*value);
  return b.add1(OpKind::kPad, std::move(inputs),
                {{"before", std::move(before)}, {"after", std::move(after)}, {"mode", mode}});
}

// ---- sources ---------------------------------------------------------------------------------------------

ValueId iota(Builder& b, Shape shape, int64_t dim, DType dtype) {
  return b.add1(OpKind::kIota, {}, {{"shape", std::move(shape)}, {"dim", dim}, {"dtype", dtype}});
}
ValueId full(Builder& b, Shape shape, DType dtype, double value) {
  return expand(b, b.scalar(dtype, value), std::move(shape));
}

// ---- contractions, indexing ------------------------------------------------------------------------------

ValueId dot_general(Builder& b, ValueId x, ValueId y, const DotDims& dims, std::optional<DType> to) {
  const DType dtype = b.dtype(x);
  DType accumulate = compute_dtype(dtype);
  if (is_integer(dtype) && info(dtype).bits <= 8) accumulate = DType::kI32;
  graph::Attributes attributes{
      {"batch_a", dims.batch_a},       {"batch_b", dims.batch_b},
      {"contract_a", dims.contract_a}, {"contract_b", dims.contract_b},
      {"accumulate", accumulate},      {"to", to.value_or(is_integer(dtype) ? accumulate : dtype)}};
  if (dims.byte_blocks > 0) attributes.set("byte_blocks", dims.byte_blocks);
  return b.add1(OpKind::kDotGeneral, {x, y}, std::move(attributes));
}

ValueId matmul(Builder& b, ValueId x, ValueId y, std::optional<DType> to) {
  const int rank_x = b.rank(x), rank_y = b.rank(y);
  if (rank_x == 0 || rank_y == 0) does_not_fit("matmul: an operand is a scalar");
  if (rank_y <= 2 && rank_x <= 2)
    return dot_general(b, x, y, {{}, {}, {rank_x - 1}, {std::max(rank_y - 2, 0)}}, to);
  if (rank_y <= 2) return dot_general(b, x, y, {{}, {}, {rank_x - 1}, {std::max(rank_y - 2, 0)}}, to);
  // Batch dims broadcast. Batch dims of an operand are omitted if all are 1.
  const bool vector_x = rank_x == 1;
  if (vector_x) x = unsqueeze(b, x, {0});
  Shape batch_x(b.shape(x).begin(), b.shape(x).end() - 2), batch_y(b.shape(y).begin(), b.shape(y).end() - 2);
  const Shape batch = broadcast(b, {batch_x, batch_y}, "matmul");
  auto widen = [&](ValueId v) {
    Shape shape = batch;
    shape.insert(shape.end(), b.shape(v).end() - 2, b.shape(v).end());
    return expand(b, v, std::move(shape));
  };
  x = widen(x);
  y = widen(y);
  std::vector<int64_t> dims(batch.size());
  std::iota(dims.begin(), dims.end(), 0);
  const int64_t n = static_cast<int64_t>(batch.size());
  const ValueId product = dot_general(b, x, y, {dims, dims, {n + 1}, {n}}, to);
  return vector_x ? squeeze(b, product, {n}) : product;
}

ValueId gather(Builder& b, ValueId data, ValueId indices, int64_t dim, int64_t batch_dims) {
  return b.add1(OpKind::kGather, {data, indices},
                {{"dim", normal_dim(b, data, dim)}, {"batch_dims", batch_dims}});
}

}  // namespace stridec::ops
