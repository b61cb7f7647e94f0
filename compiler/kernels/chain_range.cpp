#include "compiler/kernels/chain_range.h"

#include <map>
#include <set>

#include "compiler/kernels/definitions.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::BufferId;
using loop::For;
using loop::Load;
using loop::Store;
using sym::Expr;

class ChainRangeFinder {
 public:
  ChainRangeFinder(const loop::Program& program, const Chain& chain) : program_(program), chain_(chain) {}

  std::optional<ChainRange> find() {
    for (const Chain::Part& part : chain_.parts) {
      out_.sums.push_back(false);
      if (!(part.link ? add_link(part) : add_rows(part))) return std::nullopt;
    }
    for (const BufferId id : summed_) {
      const auto found = hidden_.find(id);
      if (found == hidden_.end() || !(found->second == hidden_.at(*summed_.begin()))) return std::nullopt;
    }
    if (summed_.empty()) return std::nullopt;
    const Expr shown = hidden_.at(*summed_.begin()), row = chain_.row.var;
    if (const auto end = seen_keys(shown, row, column_, program_.facts))
      out_.end = end;
    else if (const auto end = seen_keys(shown, column_, row, program_.facts))  // row < column + end
      out_.first = 1 - *end;
    else
      return std::nullopt;
    return std::move(out_);
  }

 private:
  bool is_local(BufferId id) const { return program_[id].storage == loop::Storage::kLocal; }
  bool is_at(const loop::Access& access, Expr var) const {
    return access.index == std::vector<Expr>{var} && access.mask.is_const(1);
  }
  bool has_extent(Expr extent) {
    if (columns_.empty()) out_.extent = extent;
    return extent == out_.extent;
  }

  bool add_link(const Chain::Part& part) {
    const Load* rows = plain_load(part.link->row_factor());
    if (rows && is_local(rows->access.buffer)) {
      const auto& dims = part.link->contraction.reduce->dims;
      if (dims.size() != 1 || !is_at(rows->access, dims[0].var) || !columns_.contains(rows->access.buffer))
        return false;
      summed_.insert(rows->access.buffer);
      out_.sums.back() = true;
      return true;
    }
    const std::vector<loop::Dim>& columns = part.link->columns;
    bool ok = columns.size() == 1 && has_extent(columns[0].extent);
    loop::for_each_stmt(part.nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      const bool is_store = std::holds_alternative<Store>(stmt.node);
      if (!ok || !access || (!is_store && !is_local(access->buffer))) return;
      ok = is_store && is_local(access->buffer) && is_at(*access, columns[0].var);
      columns_.insert(access->buffer);
    });
    return ok;
  }

  bool add_rows(const Chain::Part& part) {
    bool ok = true;
    const Definitions made = definitions_of(part.nest.body);
    for (const loop::Stmt& stmt : part.nest.body) {
      const auto* loop = std::get_if<For>(&stmt.node);
      if (loop) {
        ok = ok && add_loop(*loop, made);
        continue;
      }
      // Nothing else depends on columns.
      const auto visit = [&](const loop::Stmt& inner) {
        const loop::Access* access = loop::access_of(inner);
        ok = ok && !(access && is_local(access->buffer));
      };
      visit(stmt);
      if (const loop::Block* body = loop::body_of(stmt)) loop::for_each_stmt(*body, visit);
    }
    return ok;
  }

  bool add_loop(const For& loop, const Definitions& made) {
    bool ok = loop.dims.size() == 1 && has_extent(loop.dims[0].extent);
    for (const loop::Stmt& stmt : loop.body) {
      ok = ok && !loop::body_of(stmt);
      const loop::Access* access = loop::access_of(stmt);
      if (!ok || !access) continue;
      const auto* store = std::get_if<Store>(&stmt.node);
      if (is_local(access->buffer)) ok = is_at(*access, loop.dims[0].var);
      if (!store) continue;
      ok = ok && is_local(access->buffer) && !store->update;
      columns_.insert(access->buffer);
      hidden_.erase(access->buffer);
      if (const auto shown = shown_of(made, store->value))
        hidden_[access->buffer] = sym::substitute(*shown, {{loop.dims[0].var, column_}});
    }
    return ok;
  }

  // The condition without which the value is 0.
  std::optional<Expr> shown_of(const Definitions& made, loop::ValueId id) const {
    const loop::Let* let = let_of(made, skip_casts(made, id));
    if (!let) return std::nullopt;
    if (let->op == loop::ScalarOp::kMul) {
      const auto first = shown_of(made, let->args[0]);
      return first ? first : shown_of(made, let->args[1]);
    }
    if (let->op != loop::ScalarOp::kSelect) return std::nullopt;
    const auto zero = constant_of(made, let->args[2]);
    const auto found = made.find(let->args[0]);
    const auto* index = found == made.end() ? nullptr : std::get_if<loop::IndexValue>(&found->second->node);
    return index && zero && zero->f == 0 ? std::optional(index->expr) : std::nullopt;
  }

  const loop::Program& program_;
  const Chain& chain_;
  const Expr column_ = sym::var("%column");
  ChainRange out_;
  std::set<BufferId> columns_, summed_;  // locals that have columns, and of these those that links sum over
  std::map<BufferId, Expr> hidden_;      // where a local is not 0, over column_
};

}  // namespace

std::optional<ChainRange> chain_range(const loop::Program& program, const Chain& chain) {
  return ChainRangeFinder(program, chain).find();
}

}  // namespace stridec::kernels
