#include "compiler/schedule/algebra/variance.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::Let;
using loop::Nest;
using loop::Reduce;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

bool is_sum(const Nest& nest, const Reduce& reduce) {
  if (reduce.combine != loop::Combine::kSum || reduce.results.size() != 1) return false;
  const DType dtype = nest.values[reduce.results[0].value].dtype;
  return dtype == DType::kF32 || dtype == DType::kF64;
}

const Let* let_of(const Block& block, ValueId id, ScalarOp op) {
  const Stmt* stmt = loop::definition(block, id);
  const Let* let = stmt ? std::get_if<Let>(&stmt->node) : nullptr;
  return let && let->op == op ? let : nullptr;
}

// Whether two blocks compute the same for given values, with the second loop's index variables in place of
// the first's.
class Same {
 public:
  Same(const Nest& nest, const Block& a, const Block& b, const sym::Substitution& dims)
      : nest_(nest), a_(a), b_(b), dims_(dims) {}

  bool value(ValueId a, ValueId b) {
    const auto [found, unknown] = known_.try_emplace({a, b}, false);  // values are used many times
    return unknown ? found->second = compare(a, b) : found->second;
  }

 private:
  bool compare(ValueId a, ValueId b) {
    const Stmt *in_a = loop::definition(a_, a), *in_b = loop::definition(b_, b);
    if (!in_a && !in_b) return a == b;
    if (!in_a || !in_b || in_a->node.index() != in_b->node.index() ||
        nest_.values[a.value].dtype != nest_.values[b.value].dtype)
      return false;
    if (const auto* let = std::get_if<Let>(&in_a->node)) {
      const Let& other = std::get<Let>(in_b->node);
      return let->op == other.op &&
             std::equal(let->args.begin(), let->args.end(), other.args.begin(), other.args.end(),
                        [&](ValueId x, ValueId y) { return value(x, y); });
    }
    if (const auto* constant = std::get_if<loop::Constant>(&in_a->node))
      return constant->value == std::get<loop::Constant>(in_b->node).value;
    if (const auto* index = std::get_if<loop::IndexValue>(&in_a->node))
      return expr(index->expr, std::get<loop::IndexValue>(in_b->node).expr);
    if (const auto* load = std::get_if<loop::Load>(&in_a->node)) {
      const auto& other = std::get<loop::Load>(in_b->node);
      return load->access.buffer == other.access.buffer && load->fill == other.fill &&
             expr(load->access.mask, other.access.mask) &&
             std::equal(load->access.index.begin(), load->access.index.end(), other.access.index.begin(),
                        other.access.index.end(), [&](Expr x, Expr y) { return expr(x, y); });
    }
    return false;
  }

  bool expr(Expr a, Expr b) const { return sym::substitute(a, dims_) == b; }

  const Nest& nest_;
  const Block &a_, &b_;
  const sym::Substitution& dims_;
  std::map<std::pair<ValueId, ValueId>, bool> known_;
};

// Whether `value` is `sum` divided by `points`, or multiplied by the reciprocal.
bool is_mean(const Nest& nest, ValueId value, ValueId sum, Expr points, const sym::Facts& facts) {
  const auto known = sym::as_const(points);
  const auto is_number = [&](ValueId id, double number) {
    const Stmt* stmt = loop::definition(nest.body, id);
    const auto* constant = stmt ? std::get_if<loop::Constant>(&stmt->node) : nullptr;
    return constant && constant->value == loop::float_scalar(constant->value.dtype, number);
  };
  if (const Let* scaled = let_of(nest.body, value, ScalarOp::kMul); scaled && known)
    for (size_t i : {0, 1})
      if (scaled->args[i] == sum && is_number(scaled->args[1 - i], 1.0 / static_cast<double>(*known)))
        return true;
  const Let* divided = let_of(nest.body, value, ScalarOp::kDiv);
  if (!divided || divided->args[0] != sum) return false;
  const Stmt* count = loop::definition(nest.body, divided->args[1]);
  if (const auto* index = count ? std::get_if<loop::IndexValue>(&count->node) : nullptr)
    return facts.holds(sym::eq(index->expr, points));
  return known && is_number(divided->args[1], static_cast<double>(*known));
}

// Whether a statement between the two sums may change what they read.
bool writes_between(const Nest& nest, size_t from, size_t to) {
  std::set<loop::BufferId> read;
  loop::for_each_stmt(std::get<Reduce>(nest.body[from].node).body, [&](const Stmt& stmt) {
    if (const auto* load = std::get_if<loop::Load>(&stmt.node)) read.insert(load->access.buffer);
  });
  bool writes = false;
  const Block between(nest.body.begin() + static_cast<std::ptrdiff_t>(from),
                      nest.body.begin() + static_cast<std::ptrdiff_t>(to));
  loop::for_each_stmt(between, [&](const Stmt& stmt) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    writes = writes || (store && read.contains(store->access.buffer));
  });
  return writes;
}

}  // namespace

std::optional<VarianceSum> variance_after(const Nest& nest, size_t sum, const sym::Facts& facts) {
  const auto* first = std::get_if<Reduce>(&nest.body[sum].node);
  if (!first || !is_sum(nest, *first)) return std::nullopt;
  Expr points = 1;
  for (const loop::Dim& dim : first->dims) {
    if (sym::has_index(dim.extent) || facts.bounds(dim.extent).lo < 1) return std::nullopt;
    points = points * dim.extent;
  }
  for (size_t at = sum + 1; at < nest.body.size(); ++at) {
    const auto* reduce = std::get_if<Reduce>(&nest.body[at].node);
    if (!reduce || !is_sum(nest, *reduce) || reduce->dims.size() != first->dims.size()) continue;
    sym::Substitution dims;
    bool same = true;
    for (size_t d = 0; d < first->dims.size(); ++d) {
      dims[first->dims[d].var] = reduce->dims[d].var;
      same = same && first->dims[d].extent == reduce->dims[d].extent;
    }
    const Let* square = let_of(reduce->body, reduce->yields[0], ScalarOp::kMul);
    if (!same || !square || square->args[0] != square->args[1]) continue;
    const Let* deviation = let_of(reduce->body, square->args[0], ScalarOp::kSub);
    if (!deviation) continue;
    Same same_values(nest, first->body, reduce->body, dims);
    for (const auto& [x, mean] : {std::pair(deviation->args[0], deviation->args[1]),
                                  std::pair(deviation->args[1], deviation->args[0])})
      if (same_values.value(first->yields[0], x) && is_mean(nest, mean, first->results[0], points, facts) &&
          !writes_between(nest, sum, at))
        return VarianceSum{at, mean};
  }
  return std::nullopt;
}

}  // namespace stridec::schedule
