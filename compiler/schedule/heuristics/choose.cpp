#include "compiler/schedule/heuristics/choose.h"

#include "compiler/loop/provenance.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/loop_nest.h"
#include "compiler/schedule/layout/order_weights.h"
#include "compiler/schedule/layout/pack_weights.h"

namespace stridec::schedule {

void choose(loop::Program& program, const CpuTarget& target, const Chosen& chosen) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    const auto found = chosen.find(launch->nest);
    loop::Nest& nest = program[launch->nest];
    nest.schedule = found != chosen.end() ? found->second : loop::with_provenance(nest, [&] {
      return default_schedule(program, nest, target);
    });
  });
  pack_weights(program);
  order_staged_weights(program);
  choose_general(program, target);  // for the packing nests
}

}  // namespace stridec::schedule
