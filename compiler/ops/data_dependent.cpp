// Operators whose output sizes are data dependent: the sizes are symbols bound at run time.
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred nonzero_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  STRIDEC_CHECK(node.attributes.expr("count").is_var());
  return {{{DType::kI64, {b.rank(node.inputs[0]), node.attributes.expr("count")}}}, {}};
}

// A scan in row-major order computes each nonzero element's rank among the nonzero ones. A second nest writes
// each element's coordinates at its rank.
void nonzero_lower(Lowering& l, const Node& node) {
  const loop::View x = l.view(node.inputs[0]);
  const sym::Expr total = element_count(x.shape), symbol = node.attributes.expr("count");
  const loop::View ranks = l.temporary({DType::kI64, {total}}, "nonzero_rank");
  const loop::View count = l.temporary({DType::kI64, {}}, "nonzero_count");
  const loop::View flat = loop::reshape(x, {total}, l.facts());
  auto is_set = [](loop::NestBuilder& n, loop::Value value) {
    const DType dtype = value.dtype();
    if (is_bool(dtype)) return value;
    return loop::ne(value, n.constant(loop::int_scalar(dtype, 0)));
  };
  {
    loop::NestBuilder n = l.nest("nonzero_rank");
    const loop::Value zero = n.constant(loop::int_scalar(DType::kI64, 0));
    const auto counted =
        n.scan(total, false, {zero}, [&](sym::Expr i, const std::vector<loop::Value>& carried) {
          n.store(ranks, {i}, carried[0]);
          return std::vector<loop::Value>{carried[0] + n.cast(is_set(n, n.load(flat, {i})), DType::kI64)};
        });
    n.store(count, {}, counted[0]);
    n.finish(&l.steps());
  }
  l.bind_symbol(symbol, count, 0, total, cat(Lowering::origin_prefix(node), "nonzero: {0} elements"));
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("nonzero");
  const auto at = n.dims(x.shape);
  sym::Expr position = 0;
  for (size_t d = 0; d < at.size(); ++d) position = position * x.shape[d] + at[d];
  const loop::Value rank = loop::select(is_set(n, n.load(x, at)), n.load(ranks, {position}),
                                        n.constant(loop::int_scalar(DType::kI64, -1)));
  loop::Bind skip;
  skip.mode = loop::Bind::OutOfRange::kSkip;
  const sym::Expr column = n.bind(rank, symbol, std::move(skip));
  for (size_t d = 0; d < at.size(); ++d) n.store(to, {static_cast<int64_t>(d), column}, n.index_value(at[d]));
  n.finish(&l.steps());
}

Inferred symbol_of_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  STRIDEC_CHECK(node.attributes.expr("symbol").is_var());
  const Type& type = b.type(node.inputs[0]);
  if (is_float(type.dtype) || !type.shape.empty())
    does_not_fit(cat("a size is an integer scalar, not ", graph::to_string(type)));
  return {};
}

void symbol_of_lower(Lowering& l, const Node& node) {
  const std::string prefix = node.attributes.integer_or("check", 0) ? "" : Lowering::origin_prefix(node);
  std::vector<sym::Expr> values;
  if (node.attributes.find("values")) values = node.attributes.exprs("values");
  l.bind_symbol(node.attributes.expr("symbol"), l.view(node.inputs[0]), node.attributes.expr("lower"),
                node.attributes.expr("upper"), prefix + node.attributes.text("sentence"), std::move(values));
}

}  // namespace

const OpDef def_kNonZero{nonzero_shape, nonzero_lower, Gradient::flat("coordinates are integers")};
const OpDef def_kSymbolOf{symbol_of_shape, symbol_of_lower, Gradient::none("no results")};

}  // namespace stridec::ops
