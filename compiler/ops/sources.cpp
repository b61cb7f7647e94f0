// Ops without tensor inputs: constants, known elements, counters, random numbers.
#include <optional>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred made_by_builder(Builder&, const Node& node) {
  STRIDEC_CHECK(false, cat(graph::name(node.kind), " is made by Builder::constant and Builder::elements"));
}

// Lowering::view allocates memory when the value is read as a tensor.
void nothing(Lowering&, const Node&) {}

void expect_sizes(Builder& b, const Shape& shape, OpKind kind) {
  for (sym::Expr dim : shape)
    b.require(sym::ge(dim, 0), cat(graph::name(kind), ": size {0} is negative"), {dim});
}

Inferred iota_shape(Builder& b, const Node& node) {
  const Shape shape = node.attributes.exprs("shape");
  const DType dtype = node.attributes.dtype("dtype");
  const int64_t dim = node.attributes.integer("dim");
  STRIDEC_CHECK(dim >= 0 && dim < static_cast<int64_t>(shape.size()));
  expect_sizes(b, shape, node.kind);
  std::optional<Elements> elements;
  if (!is_float(dtype))
    elements = map_elements(shape, [&](const Coordinates& at) { return at[static_cast<size_t>(dim)]; });
  return {{{dtype, shape}}, {std::move(elements)}};
}

void iota_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("iota");
  const auto at = n.dims(to.shape);
  n.store(to, at, n.index_value(at[static_cast<size_t>(node.attributes.integer("dim"))], to.dtype));
  n.finish(&l.steps());
}

Inferred random_uniform_shape(Builder& b, const Node& node) {
  expect_inputs(node, 0, 1);
  const Shape shape = node.attributes.exprs("shape");
  const DType dtype = node.attributes.dtype("dtype");
  if (!node.inputs.empty() && b.type(node.inputs[0]) != graph::Type{DType::kI64, {}})
    does_not_fit(
        cat("random_uniform: the offset is ", graph::to_string(b.type(node.inputs[0])), ", not i64[]"));
  if (!is_float(dtype)) does_not_fit(cat("random_uniform makes floats, not ", name(dtype)));
  STRIDEC_CHECK(node.attributes.text_or("generator", "philox") != "mersenne" || dtype == DType::kF64);
  expect_sizes(b, shape, node.kind);
  return {{{dtype, shape}}, {}};
}

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter is the
// element's flat index and, above it, the offset of the run; the key is the seed: results do not depend on
// order, threads or tiling.
struct Philox {
  loop::NestBuilder& n;
  loop::Value wide(loop::Value x) { return n.cast(x, DType::kU64); }
  loop::Value narrow(loop::Value x) { return n.cast(x, DType::kU32); }
  loop::Value u32(uint32_t x) { return n.constant(loop::int_scalar(DType::kU32, x)); }

  std::pair<loop::Value, loop::Value> words(loop::Value x) {  // low, high
    const loop::Value all = n.cast(x, DType::kU64);
    return {narrow(all),
            narrow(loop::binary(loop::ScalarOp::kShr, all, n.constant(loop::int_scalar(DType::kU64, 32))))};
  }
  std::pair<loop::Value, loop::Value> multiply(uint32_t factor, loop::Value x) {  // high, low word
    const loop::Value product = n.constant(loop::int_scalar(DType::kU64, factor)) * wide(x);
    const loop::Value high =
        loop::binary(loop::ScalarOp::kShr, product, n.constant(loop::int_scalar(DType::kU64, 32)));
    return {narrow(high), narrow(product)};
  }
  loop::Value exclusive_or(loop::Value a, loop::Value b) {
    return loop::binary(loop::ScalarOp::kBitXor, a, b);
  }

  // The first two words of the block.
  std::pair<loop::Value, loop::Value> draw(loop::Value counter, std::optional<loop::Value> offset,
                                           uint64_t seed) {
    auto [c0, c1] = words(counter);
    auto [c2, c3] = offset ? words(*offset) : std::pair(u32(0), u32(0));
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto [high0, low0] = multiply(0xD2511F53u, c0);
      const auto [high1, low1] = multiply(0xCD9E8D57u, c2);
      c0 = exclusive_or(exclusive_or(high1, c1), u32(k0));
      c1 = low1;
      c2 = exclusive_or(exclusive_or(high0, c3), u32(k1));
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1};
  }
};

// Uses as many random bits as the dtype's mantissa holds, so that rounding never gives 1.
void random_uniform_lower(Lowering& l, const Node& node) {
  const loop::View to = l.define(node.outputs[0]);
  if (node.attributes.text_or("generator", "philox") == "mersenne") {
    loop::Call call{.routine = "mersenne_uniform",
                    .reads = {},
                    .writes = {to.buffer},
                    .arguments = {element_count(to.shape), node.attributes.integer("seed")},
                    .nodes = {}};
    if (!node.origin.empty()) call.nodes.push_back(node.origin);
    l.steps().push_back({std::move(call)});
    return;
  }
  loop::NestBuilder n = l.nest("random_uniform");
  const auto at = n.dims(to.shape);
  sym::Expr flat = 0;
  for (size_t d = 0; d < at.size(); ++d) flat = flat * to.shape[d] + at[d];
  Philox philox{n};
  std::optional<loop::Value> offset;
  if (!node.inputs.empty()) offset = l.read(n, node.inputs[0], to.shape, at);
  const auto [first, second] =
      philox.draw(n.index_value(flat), offset, static_cast<uint64_t>(node.attributes.integer_or("seed", 0)));
  loop::Value result;
  if (to.dtype == DType::kF64) {
    auto bits = [&](loop::Value word, int drop) {
      return n.cast(loop::binary(loop::ScalarOp::kShr, word, philox.u32(static_cast<uint32_t>(drop))),
                    DType::kF64);
    };
    result = (bits(first, 6) * n.constant(DType::kF64, 0x1p27) + bits(second, 5)) *
             n.constant(DType::kF64, 0x1p-53);
  } else {
    int mantissa = 24;
    if (to.dtype == DType::kF16) mantissa = 11;
    if (to.dtype == DType::kTF32) mantissa = 11;
    if (to.dtype == DType::kBF16) mantissa = 8;
    if (info(to.dtype).bits <= 8) mantissa = 3;
    const loop::Value bits =
        n.cast(loop::binary(loop::ScalarOp::kShr, first, philox.u32(static_cast<uint32_t>(32 - mantissa))),
               DType::kF32);
    result = n.cast(bits * n.constant(DType::kF32, 1.0 / (1 << mantissa)), to.dtype);
  }
  n.store(to, at, result);
  n.finish(&l.steps());
}

}  // namespace

const OpDef def_kConstant{made_by_builder, nothing, Gradient::none("no inputs")};
const OpDef def_kElements{made_by_builder, nothing, Gradient::none("no inputs")};
const OpDef def_kIota{iota_shape, iota_lower, Gradient::none("no inputs")};
const OpDef def_kRandomUniform{random_uniform_shape, random_uniform_lower, Gradient::none("no inputs")};

}  // namespace stridec::ops
