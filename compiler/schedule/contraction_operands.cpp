#include "compiler/schedule/contraction_operands.h"

#include <algorithm>

namespace stridec::schedule {
namespace {

// The load behind a value, through casts.
const loop::Load* load_behind(const loop::Block& block, loop::ValueId id) {
  for (const auto& stmt : block) {
    if (const auto* load = std::get_if<loop::Load>(&stmt.node); load && load->result == id) return load;
    const auto* let = std::get_if<loop::Let>(&stmt.node);
    if (let && let->result == id && let->op == loop::ScalarOp::kCast) return load_behind(block, let->args[0]);
  }
  return nullptr;
}

bool lacks_a_dim(const loop::Nest& nest, const loop::Load& load) {
  return std::any_of(nest.dims.begin(), nest.dims.end(), [&](const loop::Dim& dim) {
    return !dim.extent.is_const(1) &&
           std::none_of(load.access.index.begin(), load.access.index.end(),
                        [&](sym::Expr at) { return sym::depends_on(at, dim.var); });
  });
}

}  // namespace

std::optional<ContractionOperands> contraction_operands(const loop::Nest& nest) {
  for (const auto& stmt : nest.body) {
    const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
    if (!reduce || reduce->combine != loop::Combine::kSum) continue;
    for (const auto& inner : reduce->body) {
      const auto* let = std::get_if<loop::Let>(&inner.node);
      if (!let || let->op != loop::ScalarOp::kMul || let->result != reduce->yields[0]) continue;
      const loop::Load* a = load_behind(reduce->body, let->args[0]);
      const loop::Load* b = load_behind(reduce->body, let->args[1]);
      if (a && b && lacks_a_dim(nest, *a) && lacks_a_dim(nest, *b)) return ContractionOperands{reduce, a, b};
    }
  }
  return std::nullopt;
}

}  // namespace stridec::schedule
