// Lookups in constant tables: binary search in sorted keys, and decision tree walks. Each is one nest with a
// short sequential scan per element.
#include <bit>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tree_walk.h"

namespace stridec::ops {

namespace {

// ---- search_sorted ---------------------------------------------------------------------------------------

Inferred search_sorted_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  expect_same_dtype(b, node, 0, 1);
  const Type &keys = b.type(node.inputs[0]), &x = b.type(node.inputs[1]);
  if (keys.shape.size() != 1)
    does_not_fit(cat("search_sorted: the keys are ", graph::to_string(keys), ", not one row"));
  if (is_bool(keys.dtype)) does_not_fit("search_sorted: bools have no order");
  return {{{DType::kI64, x.shape}}, {}};
}

// Whether a sorts before b. NaN is larger than every number, as in sort.
loop::Value before(loop::NestBuilder& n, loop::Value a, loop::Value b) {
  const loop::Value less = loop::lt(a, b);
  if (!is_float(a.dtype())) return less;
  const loop::Value a_nan = loop::unary(loop::ScalarOp::kIsNan, a),
                    b_nan = loop::unary(loop::ScalarOp::kIsNan, b);
  const loop::Value no = n.constant(loop::int_scalar(DType::kBool, 0));
  return loop::select(a_nan, no, loop::select(b_nan, n.constant(loop::int_scalar(DType::kBool, 1)), less));
}

// The result is in [low, high]. Every step halves the range; extra steps change nothing.
void search_sorted_lower(Lowering& l, const Node& node) {
  const loop::View keys = l.view(node.inputs[0]), x = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  const bool right = node.attributes.integer_or("right", 0) != 0;
  const sym::Expr size = keys.shape[0];
  const auto count = sym::as_const(size);
  const int64_t steps = count ? std::bit_width(static_cast<uint64_t>(*count)) : 63;
  loop::NestBuilder n = l.nest("search_sorted");
  const auto at = n.dims(to.shape);
  const loop::Value wanted = n.load(x, at);
  const auto integer = [&](int64_t value) { return n.constant(loop::int_scalar(DType::kI64, value)); };
  const auto found = n.scan(
      steps, false, {integer(0), n.index_value(size)},
      [&](sym::Expr, const std::vector<loop::Value>& carried) {
        const loop::Value low = carried[0], high = carried[1];
        const loop::Value middle = loop::binary(loop::ScalarOp::kShr, low + high, integer(1));
        loop::Bind skip;
        skip.mode = loop::Bind::OutOfRange::kSkip;
        const sym::Expr place = n.bind(middle, size, std::move(skip));
        const loop::Value key = n.load(keys, {place});
        const loop::Value below =
            right ? unary(loop::ScalarOp::kNot, before(n, wanted, key)) : before(n, key, wanted);
        const loop::Value open = loop::lt(low, high);
        const loop::Value up = binary(loop::ScalarOp::kAnd, open, below),
                          down = binary(loop::ScalarOp::kAnd, open, unary(loop::ScalarOp::kNot, below));
        return std::vector<loop::Value>{loop::select(up, middle + integer(1), low),
                                        loop::select(down, middle, high)};
      });
  n.store(to, at, found[0]);
  n.finish(&l.steps());
}

// ---- tree_walk -------------------------------------------------------------------------------------------

Inferred tree_walk_shape(Builder& b, const Node& node) {
  expect_inputs(node, 3, 4);
  const Type& x = b.type(node.inputs[0]);
  if (x.shape.size() != 2 || !is_float(x.dtype))
    does_not_fit(cat("tree_walk: rows are ", graph::to_string(x)));
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (b.rank(node.inputs[i]) != 1) does_not_fit("tree_walk: a table of nodes has one dim");
  const bool apart = node.inputs.size() == 4;
  if (apart) expect_same_dtype(b, node, 0, 3);
  const int64_t child_at = apart ? 0 : 32, feature_at = node.attributes.integer("feature_at");
  if (b.dtype(node.inputs[1]) != DType::kU64 || b.dtype(node.inputs[2]) != DType::kU32 ||
      !(apart || x.dtype == DType::kF32) || feature_at <= child_at || feature_at > child_at + 32 ||
      feature_at >= kTreeEqualBit)
    does_not_fit("tree_walk: the nodes have an unknown layout");
  return {{{DType::kU32, {x.shape[0], b.shape(node.inputs[2])[0]}}}, {}};
}

void tree_walk_lower(Lowering& l, const Node& node) {
  std::vector<loop::View> in;
  for (ValueId input : node.inputs) in.push_back(l.view(input));
  const loop::View to = l.define(node.outputs[0]);
  const sym::Expr nodes = in[1].shape[0], features = in[0].shape[1];
  const bool apart = in.size() == 4;
  const int64_t child_at = apart ? 0 : 32, feature_at = node.attributes.integer("feature_at");
  const int64_t equal = node.attributes.integer_or("equal", 0);
  const bool missing = node.attributes.integer_or("missing", 0) != 0;
  loop::NestBuilder n = l.nest("tree_walk");
  const auto at = n.dims(to.shape);
  const auto integer = [&](DType dtype, int64_t value) { return n.constant(loop::int_scalar(dtype, value)); };
  const auto from_bit = [&](loop::Value word, int64_t bit) {
    return bit == 0 ? word : binary(loop::ScalarOp::kShr, word, integer(DType::kU64, bit));
  };
  const auto low_bits = [&](loop::Value value, int64_t bits, int64_t width) {
    if (bits >= width) return value;
    return binary(loop::ScalarOp::kBitAnd, value, integer(value.dtype(), (int64_t{1} << bits) - 1));
  };
  const auto bit = [&](loop::Value word, int64_t place) {
    return n.cast(low_bits(from_bit(word, place), 1, 64 - place), DType::kBool);
  };
  loop::Bind inside;
  inside.mode = loop::Bind::OutOfRange::kClamp;  // the maker of the tables has checked them
  const auto leaf = n.scan(
      node.attributes.expr("depth"), false, {n.load(in[2], {at[1]})},
      [&](sym::Expr, const std::vector<loop::Value>& carried) {
        const sym::Expr place = n.bind(carried[0], nodes, inside);
        const loop::Value word = n.load(in[1], {place});
        const bool flags = equal != 0 || missing;
        const loop::Value asked = flags ? low_bits(from_bit(word, feature_at), kTreeEqualBit - feature_at, 64)
                                        : from_bit(word, feature_at);
        const loop::Value x = n.load(in[0], {at[0], n.bind(asked, features, inside)});
        const loop::Value t =
            apart ? n.load(in[3], {place}) : n.bitcast(n.cast(word, DType::kU32), DType::kF32);
        loop::Value goes = equal == 1 ? loop::eq(x, t) : loop::le(x, t);
        if (equal == -1) goes = loop::select(bit(word, kTreeEqualBit), loop::eq(x, t), goes);
        if (missing) {
          loop::Value unknown = unary(loop::ScalarOp::kIsNan, x);
          unknown = binary(loop::ScalarOp::kAnd, unknown, bit(word, kTreeMissingBit));
          goes = binary(loop::ScalarOp::kOr, goes, unknown);
        }
        const loop::Value child =
            low_bits(n.cast(from_bit(word, child_at), DType::kU32), feature_at - child_at, 32);
        return std::vector<loop::Value>{child + n.cast(goes, DType::kU32)};
      });
  n.store(to, at, leaf[0]);
  n.finish(&l.steps());
}

}  // namespace

const OpDef def_kSearchSorted{search_sorted_shape, search_sorted_lower,
                              Gradient::flat("counts are integers")};
const OpDef def_kTreeWalk{tree_walk_shape, tree_walk_lower, Gradient::flat("leaves are integers")};

}  // namespace stridec::ops
