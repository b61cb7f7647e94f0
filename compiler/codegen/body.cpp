#include "compiler/codegen/body.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {

namespace {

std::vector<bool> summed_alone(const loop::Nest& nest) {
  std::vector<int> uses(nest.values.size()), sums(nest.values.size());
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
    const bool sum = reduce && reduce->combine == loop::Combine::kSum;
    loop::for_each_use(stmt, [&](loop::ValueId id) { ++uses[id.value], sums[id.value] += sum; });
  });
  std::vector<bool> out(nest.values.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = sums[i] == 1 && uses[i] == 1;
  return out;
}

}  // namespace

Body::Body(KernelText& text, const loop::Nest& nest, InnerLoops inner)
    : text_(text),
      nest_(nest),
      inner_(std::move(inner)),
      facts_(text.facts()),
      values_(nest.values.size()),
      summed_(summed_alone(nest)),
      slack_(slack_of(nest)) {
  for (const loop::Dim& dim : nest.dims) facts_.set_index(dim.var, dim.extent);
}

void Body::set_index(sym::Expr var, std::string c) { index_[var] = std::move(c); }

void Body::set_lanes(sym::Expr var, int width, std::string live, bool aligned) {
  STRIDEC_CHECK(width >= 1 && (width & (width - 1)) == 0);
  if (width == 1) return clear_lanes();
  lane_var_ = var;
  width_ = width;
  live_ = std::move(live);
  lanes_are_aligned_ = aligned;
  lanes_are_points_ = loop::is_var_of(var, nest_.dims);
}

void Body::clear_lanes() {
  lane_var_.reset();
  width_ = 1;
  live_.clear();
  lanes_are_aligned_ = false;
  lanes_are_points_ = false;
}

void Body::set_value(loop::ValueId id, CValue value) { values_[id.value] = std::move(value); }

void Body::set_buffer(loop::BufferId buffer, std::string pointer, std::vector<sym::Expr> strides) {
  buffers_[buffer] = {std::move(pointer), std::move(strides)};
}

bool Body::has_value(loop::ValueId id) const { return values_[id.value].has_value(); }

CValue Body::value(loop::ValueId id) const {
  STRIDEC_CHECK(has_value(id), cat("value %", id.value, " of nest '", nest_.name, "' is not defined"));
  return *values_[id.value];
}

std::string Body::lanes(loop::ValueId id) { return widened(value(id), width_); }

void Body::print(const loop::Block& block) {
  for (const loop::Stmt& stmt : block) print(stmt);
}

void Body::print(const loop::Stmt& stmt) {
  std::visit(loop::Overloaded{
                 [&](const loop::Let& s) { print_let(s); },
                 [&](const loop::Constant& s) { print_constant(s); },
                 [&](const loop::IndexValue& s) { print_index_value(s); },
                 [&](const loop::Load& s) { print_load(s); },
                 [&](const loop::Store& s) { s.update ? print_update(s) : print_store(s); },
                 [&](const loop::Bind& s) { print_bind(s); },
                 [&](const loop::Reduce& s) { print_reduce(s); },
                 [&](const loop::For& s) { print_for(s); },
                 [&](const loop::Scan& s) { print_scan(s); },
             },
             stmt.node);
}

}  // namespace stridec::codegen
