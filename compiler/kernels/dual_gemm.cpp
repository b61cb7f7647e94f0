#include "compiler/kernels/dual_gemm.h"

#include <algorithm>
#include <map>
#include <vector>

#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Load;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

// Compares the statements of two sums.
class Comparison {
 public:
  Comparison(const loop::Nest& nest, const loop::Reduce& a, const loop::Reduce& b)
      : nest_(nest), a_(a), b_(b) {
    for (size_t d = 0; d < std::min(a.dims.size(), b.dims.size()); ++d) dims_[a.dims[d].var] = b.dims[d].var;
  }

  std::optional<std::pair<const Load*, const Load*>> run() {
    if (a_.combine != loop::Combine::kSum || b_.combine != loop::Combine::kSum ||
        a_.byte_blocks != b_.byte_blocks || a_.dims.size() != b_.dims.size() ||
        a_.body.size() != b_.body.size())
      return std::nullopt;
    for (size_t d = 0; d < a_.dims.size(); ++d)
      if (!(a_.dims[d].extent == b_.dims[d].extent)) return std::nullopt;
    for (size_t i = 0; i < a_.body.size(); ++i)
      if (!equal(a_.body[i], b_.body[i])) return std::nullopt;
    if (!(is(a_.yields[0], b_.yields[0])) || !typed(a_.results[0], b_.results[0])) return std::nullopt;
    return found_;
  }

 private:
  bool typed(ValueId a, ValueId b) const { return dtype(a) == dtype(b); }
  DType dtype(ValueId id) const { return nest_.values[static_cast<size_t>(id.value)].dtype; }
  // Values defined outside the sums have to be the same.
  bool is(ValueId a, ValueId b) const {
    const auto at = values_.find(a);
    return at == values_.end() ? a == b : at->second == b;
  }
  bool same(Expr a, Expr b) const { return sym::substitute(a, dims_) == b; }
  bool defines(ValueId a, ValueId b) {
    values_.insert_or_assign(a, b);
    return typed(a, b);
  }

  bool equal(const Stmt& a, const Stmt& b) {
    if (a.node.index() != b.node.index()) return false;
    if (const auto* let = std::get_if<loop::Let>(&a.node)) {
      const auto& other = std::get<loop::Let>(b.node);
      return let->op == other.op && let->args.size() == other.args.size() &&
             std::equal(let->args.begin(), let->args.end(), other.args.begin(),
                        [&](ValueId x, ValueId y) { return is(x, y); }) &&
             defines(let->result, other.result);
    }
    if (const auto* constant = std::get_if<loop::Constant>(&a.node)) {
      const auto& other = std::get<loop::Constant>(b.node);
      return constant->value == other.value && defines(constant->result, other.result);
    }
    if (const auto* index = std::get_if<loop::IndexValue>(&a.node)) {
      const auto& other = std::get<loop::IndexValue>(b.node);
      return same(index->expr, other.expr) && defines(index->result, other.result);
    }
    const auto* load = std::get_if<Load>(&a.node);
    if (!load) return false;
    const auto& other = std::get<Load>(b.node);
    const loop::Access &x = load->access, &y = other.access;
    if (!defines(load->result, other.result)) return false;
    const bool alike = x.buffer == y.buffer && same(x.mask, y.mask) && load->fill == other.fill &&
                       std::equal(x.index.begin(), x.index.end(), y.index.begin(), y.index.end(),
                                  [&](Expr e, Expr f) { return same(e, f); });
    if (alike) return true;
    if (found_ || !x.mask.is_const(1) || !y.mask.is_const(1)) return false;
    found_ = {load, &other};
    return true;
  }

  const loop::Nest& nest_;
  const loop::Reduce &a_, &b_;
  sym::Substitution dims_;
  std::map<ValueId, ValueId> values_;
  std::optional<std::pair<const Load*, const Load*>> found_;
};

// Whether the sum's statements depend on the variable only through this index of this load.
bool only_by(const loop::Reduce& reduce, Expr var, const Load& load, size_t index) {
  bool others = false;
  loop::for_each_stmt(reduce.body, [&](const Stmt& stmt) {
    size_t at = 0;
    const auto* here = std::get_if<Load>(&stmt.node);
    if (here && here->result == load.result) {
      for (Expr e : here->access.index) others = others || (at++ != index && sym::depends_on(e, var));
      return;
    }
    loop::for_each_expr(stmt, [&](Expr e) { others = others || sym::depends_on(e, var); });
  });
  return !others;
}

}  // namespace

Expr paired_index(Expr point) { return point + kPairBlock * sym::floordiv(point, kPairBlock); }

std::optional<std::pair<size_t, size_t>> two_sums(const loop::Nest& nest) {
  std::vector<size_t> at;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (!loop::body_of(nest.body[i])) continue;
    const auto* reduce = std::get_if<loop::Reduce>(&nest.body[i].node);
    if (!reduce || reduce->combine != loop::Combine::kSum || reduce->results.size() != 1) return std::nullopt;
    at.push_back(i);
  }
  if (at.size() != 2) return std::nullopt;
  return std::pair(at[0], at[1]);
}

std::optional<std::pair<const Load*, const Load*>> differing_loads(const loop::Nest& nest,
                                                                   const loop::Reduce& a,
                                                                   const loop::Reduce& b) {
  return Comparison(nest, a, b).run();
}

std::optional<DualGemm> match_dual_gemm(const loop::Nest& nest) {
  const auto at = two_sums(nest);
  if (!at) return std::nullopt;
  const auto& a = std::get<loop::Reduce>(nest.body[at->first].node);
  const auto& b = std::get<loop::Reduce>(nest.body[at->second].node);
  const auto loads = differing_loads(nest, a, b);
  if (!loads) return std::nullopt;
  const auto [first, second] = *loads;
  if (!(first->access.buffer == second->access.buffer)) return std::nullopt;
  for (size_t d = 0; d < nest.dims.size(); ++d) {
    const Expr var = nest.dims[d].var;
    for (size_t i = 0; i < first->access.index.size(); ++i) {
      if (!(first->access.index[i] == paired_index(var)) ||
          !(second->access.index[i] == paired_index(var) + kPairBlock) || !only_by(a, var, *first, i) ||
          !only_by(b, var, *second, i))
        continue;
      DualGemm pair{.nest = nest,
                    .dim = var,
                    .second = b.results[0],
                    .first_load = first->result,
                    .second_load = second->result};
      pair.nest.dims[d].extent = nest.dims[d].extent * 2;
      loop::for_each_stmt(pair.nest.body, [&](Stmt& stmt) {
        auto* load = std::get_if<Load>(&stmt.node);
        if (load && load->result == pair.first_load) load->access.index[i] = var;
      });
      pair.nest.body[at->second].node = loop::Let{pair.second, loop::ScalarOp::kCast, {a.results[0]}};
      return pair;
    }
  }
  return std::nullopt;
}

loop::Nest product_of(const loop::Nest& nest) {
  auto pair = match_dual_gemm(nest);
  return pair ? std::move(pair->nest) : nest;
}

}  // namespace stridec::kernels
