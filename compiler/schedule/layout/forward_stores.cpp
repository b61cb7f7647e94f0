#include "compiler/schedule/layout/forward_stores.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

struct Copy {
  Access from, to;
};

// A nest that only copies.
std::optional<Copy> copy_of(const Nest& nest) {
  if (nest.body.size() != 2) return std::nullopt;
  const auto* load = std::get_if<Load>(&nest.body[0].node);
  const auto* store = std::get_if<Store>(&nest.body[1].node);
  if (!load || !store || store->value != load->result || store->update || !load->access.mask.is_const(1) ||
      !store->access.mask.is_const(1) || load->access.buffer == store->access.buffer)
    return std::nullopt;
  return Copy{load->access, store->access};
}

// The nest's index variables as expressions of the index at which it loads; `at`: one for each component.
// Each variable is a component, or the quotient and the remainder of one division are two of them. Nothing
// if some element of the buffer is loaded twice or not at all.
std::optional<sym::Substitution> inverse(const Program& program, const Nest& nest, const Access& from,
                                         const std::vector<Expr>& at) {
  const std::vector<Expr>& shape = program[from.buffer].shape;
  const auto same = [&](Expr a, Expr b) { return sym::simplify(a - b, program.facts).is_const(0); };
  sym::Substitution out;
  size_t used = 0;
  for (const loop::Dim& dim : nest.dims) {
    std::optional<size_t> whole, quotient, remainder;
    Expr size;
    for (size_t d = 0; d < from.index.size(); ++d) {
      const Expr e = from.index[d];
      if (e == dim.var && !whole) {
        whole = d;
      } else if (e.op() == sym::Op::kFloorDiv && e.arg(0) == dim.var && !quotient) {
        quotient = d;
        size = e.arg(1);
      } else if (e.op() == sym::Op::kMod && e.arg(0) == dim.var && !remainder) {
        remainder = d;
      } else if (sym::depends_on(e, dim.var)) {
        return std::nullopt;
      }
    }
    if (whole) {
      if (quotient || remainder || !same(dim.extent, shape[*whole])) return std::nullopt;
      out[dim.var] = at[*whole];
      ++used;
    } else {
      if (!quotient || !remainder || from.index[*remainder].arg(1) != size ||
          !same(shape[*remainder], size) || !same(dim.extent, shape[*quotient] * size))
        return std::nullopt;
      out[dim.var] = at[*quotient] * size + at[*remainder];
      used += 2;
    }
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (from.index[d].is_const(0) && shape[d].is_const(1)) ++used;
  return used == shape.size() ? std::optional(out) : std::nullopt;
}

class Forwarder {
 public:
  Forwarder(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void block(loop::Steps& steps) {
    std::optional<Flow> flow;
    for (int at = static_cast<int>(steps.size()) - 1; at >= 0; --at) {
      const Nest* nest = nest_at(program_, steps, at);
      const auto copy = nest ? copy_of(*nest) : std::nullopt;
      if (!copy) continue;
      if (!flow) flow = Flow(program_, steps);
      if (forward(steps, *flow, at, *copy)) flow.reset();
    }
  }

 private:
  bool forward(loop::Steps& steps, const Flow& flow, int at, const Copy& copy) {
    const BufferId part = copy.from.buffer, whole = copy.to.buffer;
    if (!passes_once(program_, flow, part) || program_[whole].storage != loop::Storage::kArena ||
        program_[part].dtype != program_[whole].dtype)
      return false;
    const int from = writer_before(program_, steps, flow, at, part);
    if (from < 0) return false;
    // The elements would be stored earlier.
    for (int step = from; step < at; ++step)
      if (reads(flow.effects(step), whole) ||
          (writes(flow.effects(step), whole) &&
           (!nest_at(program_, steps, step) || !access_disjoint(program_, *nest_at(program_, steps, at),
                                                                *nest_at(program_, steps, step), whole))))
        return false;
    Nest& made = program_[std::get<loop::Launch>(steps[static_cast<size_t>(from)].node).nest];
    const Nest& nest = *nest_at(program_, steps, at);
    std::vector<std::pair<Store*, Access>> stores;
    bool fits = true;
    loop::for_each_stmt(made.body, [&](Stmt& stmt) {
      auto* store = std::get_if<Store>(&stmt.node);
      if (!store || store->access.buffer != part) return;
      const auto point = inverse(program_, nest, copy.from, store->access.index);
      fits = fits && point && !store->update && store->access.mask.is_const(1);
      if (!fits) return;
      Access to{whole, {}};
      for (Expr e : copy.to.index) to.index.push_back(sym::substitute(e, *point));
      fits = fits && runs_along(made, store->access, to);
      stores.emplace_back(store, std::move(to));
    });
    if (!fits || stores.size() != 1) return false;
    if (decisions_)
      decisions_->push_back(decision_about(program_, made, nest, true, "stored where it would be copied to"));
    stores[0].first->access = std::move(stores[0].second);
    for (const std::string& node : nest.nodes)
      if (std::find(made.nodes.begin(), made.nodes.end(), node) == made.nodes.end())
        made.nodes.push_back(node);
    loop::simplify(program_, made);
    steps.erase(steps.begin() + at);
    return true;
  }

  // Whether a loop along which `before` is contiguous is one along which `after` is.
  bool runs_along(const Nest& nest, const Access& before, const Access& after) const {
    sym::Facts facts = loop::facts_of(program_, nest);
    std::vector<loop::Dim> dims = nest.dims;
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      for (const loop::Dim& dim : loop::dims_of(stmt)) dims.push_back(dim);
      loop::add_facts(facts, stmt);
    });
    return std::all_of(dims.begin(), dims.end(), [&](const loop::Dim& dim) {
      const auto old = loop::stride_of(program_, before, dim.var, facts),
                 now = loop::stride_of(program_, after, dim.var, facts);
      return !old || !old->is_const(1) || dim.extent.is_const(1) || (now && now->is_const(1)) ||
             contiguous_elsewhere(dims, dim, after, facts);
    });
  }

  // Or another loop of the nest becomes contiguous, which templates that hold tiles of results store along.
  bool contiguous_elsewhere(const std::vector<loop::Dim>& dims, const loop::Dim& except, const Access& after,
                            const sym::Facts& facts) const {
    return std::any_of(dims.begin(), dims.end(), [&](const loop::Dim& dim) {
      if (dim.var == except.var || !dim.extent.is_const() || dim.extent.value() < 16) return false;
      const auto step = loop::stride_of(program_, after, dim.var, facts);
      return step && step->is_const(1);
    });
  }

  Program& program_;
  std::vector<Decision>* decisions_;
};

}  // namespace

void forward_stores(Program& program, std::vector<Decision>* decisions) {
  Forwarder forwarder(program, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { forwarder.block(steps); });
}

}  // namespace stridec::schedule
