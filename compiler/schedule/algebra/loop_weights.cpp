#include "compiler/schedule/algebra/loop_weights.h"

#include <algorithm>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Step;
using loop::Steps;

// The buffer that the nest stores, if it converts weights to it element by element, at sizes that are known.
std::optional<BufferId> converted(const Program& program, const Nest& nest) {
  std::optional<BufferId> result;
  bool ok = true, reads = false;
  const auto constant = [&](sym::Expr e) {
    for (sym::Expr v : sym::free_vars(e)) ok = ok && sym::is_index(v);
  };
  for (const loop::Dim& dim : nest.dims) constant(dim.extent);
  for (const loop::Stmt& stmt : nest.body) {
    loop::for_each_expr(stmt, constant);
    ok = ok && !loop::body_of(stmt) && !std::holds_alternative<loop::Bind>(stmt.node);
    if (const auto* load = std::get_if<loop::Load>(&stmt.node)) {
      reads = true;
      ok = ok && program[load->access.buffer].storage == loop::Storage::kParameter;
    } else if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
      ok = ok && !result && !store->update && program[store->access.buffer].storage == loop::Storage::kArena;
      result = store->access.buffer;
    }
  }
  return ok && reads ? result : std::nullopt;
}

const Nest* nest_of(const Program& program, const Step& step) {
  const auto* launch = std::get_if<loop::Launch>(&step.node);
  return launch ? &program[launch->nest] : nullptr;
}

struct Uses {
  int readers = 0, writers = 0;
};
Uses uses_of(const Program& program, BufferId id) {
  Uses out;
  loop::for_each_step(program.steps, [&](const Step& step) {
    const Effects effects = effects_of(program, step);
    out.readers += reads(effects, id);
    out.writers += writes(effects, id);
  });
  return out;
}

// Places the step before the contraction in the block that reads the buffer; returns whether it is there.
bool place_before_reader(const Program& program, Steps& block, BufferId id, const Step& step) {
  for (auto at = block.begin(); at != block.end(); ++at) {
    const Nest* nest = nest_of(program, *at);
    if (!nest || !reads(effects_of(program, *at), id)) continue;
    if (!kernels::match_contraction(*nest)) return false;
    block.insert(at, step);
    return true;
  }
  return false;
}

bool place_in_loops(const Program& program, Steps& steps, BufferId id, const Step& step, bool inside) {
  if (inside && place_before_reader(program, steps, id, step)) return true;
  for (Step& each : steps)
    if (auto* loop = std::get_if<loop::While>(&each.node))
      if (place_in_loops(program, loop->body, id, step, true)) return true;
  return false;
}

}  // namespace

bool sink_weights(Program& program) {
  if (std::ranges::none_of(program.steps,
                           [](const Step& step) { return std::holds_alternative<loop::While>(step.node); }))
    return false;
  bool moved = false;
  for (size_t at = 0; at < program.steps.size();) {
    const Step step = program.steps[at];
    const Nest* nest = nest_of(program, step);
    const auto id = nest ? converted(program, *nest) : std::nullopt;
    const Uses uses = id ? uses_of(program, *id) : Uses();
    if (uses.readers == 1 && uses.writers == 1 && place_in_loops(program, program.steps, *id, step, false)) {
      program.steps.erase(program.steps.begin() + static_cast<std::ptrdiff_t>(at));
      moved = true;
    } else {
      ++at;
    }
  }
  return moved;
}

void lift_weights(Program& program) {
  Steps out;
  for (Step& step : program.steps) {
    if (auto* loop = std::get_if<loop::While>(&step.node)) {
      const auto lift = [&](const auto& self, Steps& body) -> void {
        std::erase_if(body, [&](Step& inner) {
          if (auto* nested = std::get_if<loop::While>(&inner.node)) self(self, nested->body);
          const Nest* nest = nest_of(program, inner);
          const auto id = nest ? converted(program, *nest) : std::nullopt;
          if (!id || uses_of(program, *id).writers != 1) return false;
          out.push_back(inner);
          return true;
        });
      };
      lift(lift, loop->body);
    }
    out.push_back(std::move(step));
  }
  program.steps = std::move(out);
}

}  // namespace stridec::schedule
