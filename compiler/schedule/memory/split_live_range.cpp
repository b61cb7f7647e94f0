#include "compiler/schedule/memory/split_live_range.h"

#include <algorithm>
#include <optional>

#include "compiler/loop/build.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using sym::Expr;

class LiveRangeFinder {
 public:
  LiveRangeFinder(const Program& program, const Flow& flow, BufferId id) : program_(program), flow_(flow) {
    part_.of = id;
  }

  std::optional<EarlyPart> find() {
    size_t at = 0;
    while (at < program_.steps.size() && !touches(flow_.effects(at), part_.of)) ++at;
    const Nest* maker = nest_of(at);
    if (!maker || reads(flow_.effects(at), part_.of) || !is_box(*maker)) return std::nullopt;
    part_.made = static_cast<int>(at);
    while (++at < program_.steps.size())
      if (touches(flow_.effects(at), part_.of) && !is_within(at)) break;
    part_.needed = static_cast<int>(at);
    const bool some_between = part_.needed > part_.made + 1;
    return some_between && at < program_.steps.size() ? std::optional(part_) : std::nullopt;
  }

 private:
  const loop::Buffer& buffer() const { return program_[part_.of]; }
  const Nest* nest_of(size_t at) const {
    return at < program_.steps.size() ? nest_at(program_, program_.steps, static_cast<int>(at)) : nullptr;
  }
  bool is_all(size_t d) const { return part_.first[d] == 0 && is_zero(part_.shape[d] - buffer().shape[d]); }
  bool is_zero(Expr expr) const { return sym::as_const(sym::simplify(expr, program_.facts)) == 0; }

  // Whether the nest stores a box smaller than the buffer.
  bool is_box(const Nest& nest) {
    const auto along = accesses_along(program_, nest, part_.of, true);
    bool smaller = false;
    for (size_t d = 0; d < along.size(); ++d) {
      const bool one = is_zero(buffer().shape[d] - 1);
      if (!one && (!along[d] || along[d]->scale != 1 || along[d]->low != along[d]->high || along[d]->low < 0))
        return false;
      part_.first.push_back(one ? 0 : along[d]->low);
      part_.shape.push_back(one ? 1 : extent_of(nest, along[d]->var));
      smaller = smaller || !is_all(d);
    }
    return smaller;
  }

  // Whether the step is a launch that reads only this part of the buffer and does not write it.
  bool is_within(size_t at) const {
    const Nest* nest = nest_of(at);
    if (!nest || writes(flow_.effects(at), part_.of)) return false;
    const auto along = accesses_along(program_, *nest, part_.of, false);
    for (size_t d = 0; d < along.size(); ++d) {
      if (is_all(d)) continue;
      if (!along[d] || along[d]->scale != 1 || along[d]->low != part_.first[d] ||
          along[d]->high != part_.first[d] || !is_zero(extent_of(*nest, along[d]->var) - part_.shape[d]))
        return false;
    }
    return true;
  }

  const Program& program_;
  const Flow& flow_;
  EarlyPart part_{};
};

}  // namespace

std::vector<EarlyPart> early_parts(const Program& program, const Flow& flow) {
  std::vector<EarlyPart> parts;
  const std::set<BufferId> fixed = fixed_buffers(program);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferId id(static_cast<int64_t>(i));
    if (program[id].storage != loop::Storage::kArena || fixed.contains(id)) continue;
    if (auto part = LiveRangeFinder(program, flow, id).find()) parts.push_back(*std::move(part));
  }
  return parts;
}

void split_off(Program& program, const Flow& flow, const EarlyPart& part) {
  const BufferId own = add_part(program, part.of, part.shape);
  loop::NestBuilder nest(program, "part");
  loop::NodeId made_by;
  for (int at = part.made; at < part.needed; ++at) {
    if (!touches(flow.effects(at), part.of)) continue;
    Nest& other = program[std::get<loop::Launch>(program.steps[static_cast<size_t>(at)].node).nest];
    if (at == part.made) nest.nest().nodes = other.nodes;
    const sym::Facts facts = loop::facts_of(program, other);
    loop::for_each_stmt(other.body, [&](loop::Stmt& stmt) {
      Access* access = loop::access_of(stmt);
      if (!access || access->buffer != part.of) return;
      if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && at == part.made)
        made_by = loop::node_of(other, store->value);
      access->buffer = own;
      for (size_t d = 0; d < part.first.size(); ++d)
        access->index[d] = sym::simplify(access->index[d] - part.first[d], facts);
    });
  }
  const std::vector<Expr> at = nest.dims(part.shape);
  std::vector<Expr> place;
  for (size_t d = 0; d < at.size(); ++d) place.push_back(at[d] + part.first[d]);
  nest.store(loop::whole(program, part.of), place, nest.load(loop::whole(program, own), at));
  loop::attribute(nest.nest(), made_by);
  loop::Steps copy;
  nest.finish(&copy);
  program.steps.insert(program.steps.begin() + part.needed, copy[0]);
}

}  // namespace stridec::schedule
