// Body: several points of a nest at once (unroll and jam).
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen {
namespace {

// Whether the statement, or one nested in it, depends on `along` or uses a value that does.
bool differs(const loop::Stmt& stmt, sym::Expr along, const std::set<loop::ValueId>& apart) {
  bool found =
      std::holds_alternative<loop::Store>(stmt.node) || std::holds_alternative<loop::Bind>(stmt.node);
  loop::for_each_use(stmt, [&](loop::ValueId id) { found = found || apart.count(id) > 0; });
  loop::for_each_expr(stmt, [&](sym::Expr e) { found = found || sym::depends_on(e, along); });
  if (const loop::Block* body = loop::body_of(stmt))
    for (const loop::Stmt& inner : *body) found = found || differs(inner, along, apart);
  return found;
}

std::vector<const loop::Stmt*> all_of(const loop::Block& block) {
  std::vector<const loop::Stmt*> out;
  for (const loop::Stmt& stmt : block) out.push_back(&stmt);
  return out;
}

}  // namespace

void Body::follow(const Body& leader, sym::Expr var) {
  index_[var] = leader.index_.at(var);
  facts_ = leader.facts_;
  lane_var_ = leader.lane_var_;
  lanes_are_aligned_ = leader.lanes_are_aligned_;
  lanes_are_points_ = leader.lanes_are_points_;
  width_ = leader.width_;
  live_ = leader.live_;
}

void Body::print_together(std::vector<Body>& bodies, sym::Expr along,
                          const std::vector<const loop::Stmt*>& stmts, std::set<loop::ValueId>& apart) {
  Body& first = bodies[0];
  const auto within = [&](const std::vector<loop::Dim>& dims, const loop::Block& block) {
    for (size_t b = 1; b < bodies.size(); ++b)
      for (const loop::Dim& dim : dims) bodies[b].follow(first, dim.var);
    print_together(bodies, along, all_of(block), apart);
  };
  for (const loop::Stmt* stmt : stmts) {
    if (!differs(*stmt, along, apart)) {
      first.print(*stmt);
      for (size_t b = 1; b < bodies.size(); ++b) {
        loop::for_each_result(
            *stmt, [&](loop::ValueId id) { bodies[b].values_[id.value] = first.values_[id.value]; });
        bodies[b].numbers_ = first.numbers_;
        bodies[b].made_by_ = first.made_by_;
      }
      continue;
    }
    loop::for_each_result(*stmt, [&](loop::ValueId id) { apart.insert(id); });
    if (const auto* loop = std::get_if<loop::For>(&stmt->node))
      first.print_loops(loop->dims, 0, [&] { within(loop->dims, loop->body); });
    else if (const auto* reduce = std::get_if<loop::Reduce>(&stmt->node))
      print_reduces(bodies, *reduce, [&] { within(reduce->dims, reduce->body); });
    else
      for (Body& body : bodies) body.print(*stmt);
  }
}

void Body::print_reduces(std::vector<Body>& bodies, const loop::Reduce& reduce,
                         const std::function<void()>& inside) {
  Body& first = bodies[0];
  KernelText& text = first.text_;
  const size_t parts = reduce.results.size();
  std::vector<DType> dtypes;
  for (loop::ValueId id : reduce.results) dtypes.push_back(first.nest_.values[id.value].dtype);
  std::vector<std::vector<std::string>> accumulators(bodies.size());
  for (std::vector<std::string>& of_one : accumulators)
    for (size_t p = 0; p < parts; ++p) of_one.push_back(text.fresh("a"));
  // Their width is known once the terms are printed.
  int width = 1;
  const std::string loops = text.capture([&] {
    first.print_loops(reduce.dims, 0, [&] {
      inside();
      for (const Body& body : bodies)
        for (loop::ValueId id : reduce.yields) width = std::max(width, body.value(id).width);
      for (size_t b = 0; b < bodies.size(); ++b) {
        std::vector<std::string> from;
        for (loop::ValueId id : reduce.yields) from.push_back(bodies[b].widened(bodies[b].value(id), width));
        bodies[b].print_combine(reduce.combine, accumulators[b], from, dtypes, width);
      }
    });
  });
  for (const std::vector<std::string>& of_one : accumulators)
    for (size_t p = 0; p < parts; ++p) {
      const std::string type = text.value_type(dtypes[p], width);
      text.line(
          cat(type, " ", of_one[p], " = (", type, ")(", first.identity(reduce.combine, dtypes[p], p), ");"));
    }
  text.append(loops);
  for (size_t b = 0; b < bodies.size(); ++b)
    for (size_t p = 0; p < parts; ++p)
      is_storage_float(dtypes[p])
          ? bodies[b].define(reduce.results[p], bodies[b].rounded(accumulators[b][p], dtypes[p], width),
                             width)
          : bodies[b].set_value(reduce.results[p], {accumulators[b][p], dtypes[p], width});
}

}  // namespace stridec::codegen
