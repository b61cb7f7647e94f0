#include <algorithm>
#include <map>

#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

using sym::Expr;

struct Definition {
  size_t order;
  const Stmt* stmt;
};
using Definitions = std::map<ValueId, Definition>;

bool is_slice_part(const Stmt& s) {
  return std::holds_alternative<Let>(s.node) || std::holds_alternative<Constant>(s.node) ||
         std::holds_alternative<IndexValue>(s.node) || std::holds_alternative<Load>(s.node);
}

const Let* conversion(const Definition& d) {
  auto* let = std::get_if<Let>(&d.stmt->node);
  return let && (let->op == ScalarOp::kCast || let->op == ScalarOp::kCastSat) ? let : nullptr;
}

std::optional<Operand> operand(ValueId value, const Definitions& definitions) {
  Operand out{.value = value, .slice = {}, .loads = {}, .vars = {}};
  std::map<size_t, const Stmt*> slice;
  std::vector<ValueId> open{value};
  while (!open.empty()) {
    auto it = definitions.find(open.back());
    open.pop_back();
    if (it == definitions.end() || !is_slice_part(*it->second.stmt)) return std::nullopt;
    if (!slice.emplace(it->second.order, it->second.stmt).second) continue;
    for_each_use(*it->second.stmt, [&](ValueId v) { open.push_back(v); });
    for_each_expr(*it->second.stmt, [&](Expr e) {
      for (Expr v : sym::free_vars(e))
        if (sym::is_index(v) && std::find(out.vars.begin(), out.vars.end(), v) == out.vars.end())
          out.vars.push_back(v);
    });
  }
  for (const auto& [order, stmt] : slice) {
    out.slice.push_back(stmt);
    if (auto* load = std::get_if<Load>(&stmt->node)) out.loads.push_back(load);
  }
  ValueId source = value;
  while (const Let* cast = conversion(definitions.at(source))) source = cast->args[0];
  out.plain = std::get_if<Load>(&definitions.at(source).stmt->node);
  return out;
}

}  // namespace

std::optional<Contraction> classify_contraction(const Nest& nest) {
  Contraction c;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    auto* reduce = std::get_if<Reduce>(&nest.body[i].node);
    // There must be exactly one loop, a reduction.
    if (body_of(nest.body[i]) && (!reduce || c.reduce)) return std::nullopt;
    if (!reduce) continue;
    c.at = i;
    c.reduce = reduce;
  }
  if (!c.reduce || c.reduce->combine != Combine::kSum || c.reduce->results.size() != 1) return std::nullopt;
  Definitions definitions;
  size_t order = 0;
  for (size_t i = 0; i < c.at; ++i)
    for_each_result(nest.body[i], [&](ValueId v) { definitions[v] = {order++, &nest.body[i]}; });
  for (const Stmt& s : c.reduce->body) {
    if (body_of(s) || std::holds_alternative<Store>(s.node) || std::holds_alternative<Bind>(s.node))
      return std::nullopt;
    for_each_result(s, [&](ValueId v) { definitions[v] = {order++, &s}; });
  }

  // Find the product by skipping conversions of it.
  auto product = definitions.find(c.reduce->yields[0]);
  while (product != definitions.end() && conversion(product->second))
    product = definitions.find(conversion(product->second)->args[0]);
  if (product == definitions.end()) return std::nullopt;
  auto* mul = std::get_if<Let>(&product->second.stmt->node);
  if (!mul || mul->op != ScalarOp::kMul) return std::nullopt;
  std::optional<Operand> a = operand(mul->args[0], definitions), b = operand(mul->args[1], definitions);
  if (!a || !b || a->loads.empty() || b->loads.empty()) return std::nullopt;
  c.a = std::move(*a);
  c.b = std::move(*b);
  c.accumulate = nest.values[c.reduce->results[0].value].dtype;
  c.product = nest.values[mul->result.value].dtype;

  auto depends = [](const Operand& o, Expr v) {
    return std::find(o.vars.begin(), o.vars.end(), v) != o.vars.end();
  };
  for (const Dim& d : nest.dims) {
    bool in_a = depends(c.a, d.var), in_b = depends(c.b, d.var);
    (in_a && in_b ? c.batch : in_a ? c.m : in_b ? c.n : c.loose).push_back(d);
  }
  // A factor that does not depend on any reduced dim could be moved out of the sum: that nest is a scaled
  // reduction.
  bool a_moves = false, b_moves = false;
  for (const Dim& d : c.reduce->dims) {
    a_moves = a_moves || depends(c.a, d.var);
    b_moves = b_moves || depends(c.b, d.var);
    c.k.push_back(d);
  }
  if (!a_moves || !b_moves) return std::nullopt;
  return c;
}

}  // namespace stridec::loop
