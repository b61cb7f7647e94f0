// Looking things up in constant tables: binary search in sorted keys, and walks down decision trees. Both are
// one nest with an ordered scan of a few steps for every element.
#include <bit>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

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

// Is a before b? NaN is larger than every number, as in sort.
loop::Value before(loop::NestBuilder& n, loop::Value a, loop::Value b) {
  const loop::Value less = loop::lt(a, b);
  if (!is_float(a.dtype())) return less;
  const loop::Value a_nan = loop::unary(loop::ScalarOp::kIsNan, a),
                    b_nan = loop::unary(loop::ScalarOp::kIsNan, b);
  const loop::Value no = n.constant(loop::int_scalar(DType::kBool, 0));
  return loop::select(a_nan, no, loop::select(b_nan, n.constant(loop::int_scalar(DType::kBool, 1)), less));
}

// The answer lies in [low, high] and every step halves it; steps beyond the last change nothing.
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

// Inputs: x [rows, features] and, per node of all trees, feature (i64), threshold (x's dtype), mode (u8), yes
// and no (i64: the next node; a leaf names itself), missing (bool: NaN goes to yes); per tree its root (i64).
// Modes: x <= t, x < t, x >= t, x > t, x == t, x != t, always yes. Attribute `mode`: the one that all inner
// nodes have.
enum TreeMode : int64_t { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual, kAlways };

Inferred tree_walk_shape(Builder& b, const Node& node) {
  expect_inputs(node, 8, 8);
  expect_same_dtype(b, node, 0, 2);
  if (b.rank(node.inputs[0]) != 2)
    does_not_fit(cat("tree_walk: rows are ", graph::to_string(b.type(node.inputs[0]))));
  for (size_t i = 1; i < 8; ++i) STRIDEC_CHECK(b.rank(node.inputs[i]) == 1);
  STRIDEC_CHECK(node.attributes.integer_or("mode", -1) <= kAlways);
  return {{{DType::kI64, {b.shape(node.inputs[0])[0], b.shape(node.inputs[7])[0]}}}, {}};
}

void tree_walk_lower(Lowering& l, const Node& node) {
  std::vector<loop::View> in;
  for (ValueId input : node.inputs) in.push_back(l.view(input));
  const loop::View to = l.define(node.outputs[0]);
  const sym::Expr nodes = in[1].shape[0], features = in[0].shape[1];
  loop::NestBuilder n = l.nest("tree_walk");
  const auto at = n.dims(to.shape);
  const auto leaf = n.scan(
      node.attributes.expr("depth"), false, {n.load(in[7], {at[1]})},
      [&](sym::Expr, const std::vector<loop::Value>& carried) {
        loop::Bind inside;
        inside.mode = loop::Bind::OutOfRange::kClamp;  // the importer has checked the tables
        const sym::Expr place = n.bind(carried[0], nodes, std::move(inside));
        loop::Bind column;
        column.sentence =
            cat(Lowering::origin_prefix(node), "tree_walk: feature {0} where rows have {1} features");
        const sym::Expr feature = n.bind(n.load(in[1], {place}), features, std::move(column));
        const loop::Value x = n.load(in[0], {at[0], feature}), t = n.load(in[2], {place});
        const auto compared = [&](int64_t m) {
          switch (m) {
            case kLessEqual: return loop::le(x, t);
            case kLess: return loop::lt(x, t);
            case kGreaterEqual: return loop::le(t, x);
            case kGreater: return loop::lt(t, x);
            case kEqual: return loop::eq(x, t);
            case kNotEqual: return loop::ne(x, t);
            default: return n.constant(loop::int_scalar(DType::kBool, 1));
          }
        };
        const int64_t all = node.attributes.integer_or("mode", -1);
        loop::Value goes = compared(all < 0 ? int64_t{kAlways} : all);
        if (all < 0) {
          const loop::Value mode = n.load(in[3], {place});
          for (int64_t m = kNotEqual; m >= kLessEqual; --m)
            goes =
                loop::select(loop::eq(mode, n.constant(loop::int_scalar(DType::kU8, m))), compared(m), goes);
        }
        if (is_float(x.dtype()))
          goes =
              binary(loop::ScalarOp::kOr, goes,
                     binary(loop::ScalarOp::kAnd, unary(loop::ScalarOp::kIsNan, x), n.load(in[6], {place})));
        return std::vector<loop::Value>{loop::select(goes, n.load(in[4], {place}), n.load(in[5], {place}))};
      });
  n.store(to, at, leaf[0]);
  n.finish(&l.steps());
}

}  // namespace

const OpDef def_kSearchSorted{search_sorted_shape, search_sorted_lower};
const OpDef def_kTreeWalk{tree_walk_shape, tree_walk_lower};

}  // namespace stridec::ops
