// Body: several points of a nest at once (unroll and jam).
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/loop/analysis.h"
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

void Body::prefetch_next_row(const loop::Reduce& reduce) {
  constexpr int64_t kLine = 64, kPage = 4096, kStreams = 8, kManyStreams = 32, kFar = 4;
  if (text_.is_cuda() || width_ == 1 || !lane_var_) return;
  for (const loop::Stmt& stmt : reduce.body) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || text_.program()[load->access.buffer].storage == loop::Storage::kLocal) continue;
    const loop::Buffer& buffer = text_.program()[load->access.buffer];
    const auto step = [&](sym::Expr var) -> std::optional<int64_t> {
      const auto stride = loop::stride_of(text_.program(), load->access, var, facts_);
      return stride ? sym::as_const(*stride) : std::nullopt;
    };
    const int64_t item = byte_size(buffer.dtype);
    double bytes = static_cast<double>(item);
    for (sym::Expr extent : buffer.shape)
      bytes *= static_cast<double>(sym::as_const(extent).value_or(1 << 20));
    const int64_t apart = step(*lane_var_).value_or(0);
    if (apart < 1 || apart > kFar || bytes <= static_cast<double>(text_.target().l2_bytes)) continue;
    int64_t row = 0;
    for (const loop::Dim& dim : nest_.dims) {
      const int64_t each = dim.var == *lane_var_ || !index_.contains(dim.var) ? 0 : step(dim.var).value_or(0);
      if (each * item >= kLine && (row == 0 || each < row)) row = each;
    }
    std::vector<std::string> conditions;
    int64_t streams = row > 0 ? 1 : 0;
    bool pages = false;
    for (const loop::Dim& dim : reduce.dims) {
      const int64_t each = step(dim.var).value_or(0);
      // Addresses whole pages apart map to the same cache sets, where a prefetch evicts lines still in use.
      // Streams that are whole pages apart: hardware prefetchers follow too few of them.
      pages = pages || each * item % kPage == 0;
      if (each <= 0) streams = 0;
      if (each * item < kLine)
        conditions.push_back(cat(index(dim.var), " == 0"));
      else if (each <= row)
        conditions.push_back(
            cat(index(dim.var), " >= ", index(dim.extent), " - ", std::max<int64_t>(1, row / each)));
      else
        streams *= sym::as_const(dim.extent).value_or(kStreams);
    }
    if (streams < (pages ? kManyStreams : kStreams) || (pages && apart == 1)) continue;
    const std::string condition = conditions.empty() ? "" : cat("if (", join(conditions, " && "), ") ");
    for (int64_t at = 0; at < width_ * apart; at += kLine / item)
      text_.line(cat(condition, "__builtin_prefetch(", text_.pointer(load->access.buffer), " + (",
                     offset(load->access), " + ", row + at, "), 0, 2);"));
  }
}

}  // namespace stridec::codegen
