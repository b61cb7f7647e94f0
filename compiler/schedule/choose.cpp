#include "compiler/schedule/choose.h"

#include "compiler/loop/walk.h"
#include "compiler/schedule/candidates.h"
#include "compiler/schedule/choose_general.h"
#include "compiler/schedule/pack_weights.h"

namespace stridec::schedule {

void choose(loop::Program& program, const CpuTarget& target, const Chosen& chosen) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    const auto found = chosen.find(launch->nest);
    program[launch->nest].schedule =
        found != chosen.end() ? found->second : default_schedule(program, program[launch->nest], target);
  });
  pack_weights(program);
  choose_general(program, target);  // what packs
}

}  // namespace stridec::schedule
