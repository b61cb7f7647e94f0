#include "compiler/ops/composite/grouped_product.h"

#include "compiler/ops/composite/contraction.h"

namespace stridec::ops {

Term grouped_product(Term rows, Term weights, Term ends) {
  Builder& b = rows.builder();
  const sym::Expr n = rows.dim(0), groups = weights.dim(0), width = weights.dim(2);
  b.require(sym::eq(ends.dim(0), groups), "{0} ends for {1} groups", {ends.dim(0), groups});
  const Term zeros = filled(b, {n, width}, rows.dtype(), 0);
  const Term row = index_along(b, {n}, 0, DType::kI64), last = cast(ends, DType::kI64);
  const Term zero = filled(b, {}, DType::kI64, 0);
  const LoopResult result =
      loop(b, groups, std::nullopt, {zeros.id(), zero.id()}, [&](const LoopState& state) {
        const Term sum(b, state.carried[0]), start(b, state.carried[1]);
        const Term end = gather(last, Term(b, state.counter_value), 0);
        const Term mine = logical_and(greater_equal(row, start), less(row, end));
        const sym::Expr count = b.fresh_symbol("rows", 0, n);
        const Term at =
            reshape(Term(b, b.add1(graph::OpKind::kNonZero, {mine.id()}, {{"count", count}})), {count});
        const ValueId any = b.elements({sym::gt(count, 0)}, {}, DType::kBool);
        const auto work = [&] {
          const Term matrix = squeeze(slice(weights, 0, state.counter, 1), {0});
          const Term part = cast(matmul(gather(rows, at, 0), matrix), rows.dtype());
          return std::vector<ValueId>{
              b.add1(graph::OpKind::kScatterElements,
                     {sum.id(), expand(unsqueeze(at, {1}), part.shape()).id(), part.id()},
                     {{"dim", int64_t{0}}, {"reduction", std::string("none")}})};
        };
        const std::vector<ValueId> next =
            if_else(b, any, work, [&] { return std::vector<ValueId>{sum.id()}; });
        return LoopStep{.condition = std::nullopt, .carried = {next[0], end.id()}, .stacked = {}};
      });
  return {b, result.carried[0]};
}

}  // namespace stridec::ops
