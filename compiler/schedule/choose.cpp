#include "compiler/schedule/choose.h"

#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/choose_general.h"
#include "compiler/schedule/pack_weights.h"

namespace stridec::schedule {

void choose(loop::Program& program, const CpuTarget& target) {
  auto choose_for = [&](loop::Nest& nest) {
    if (auto contraction = choose_contraction(program, nest, target)) nest.schedule = std::move(*contraction);
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) choose_for(program[launch->nest]);
  });
  pack_weights(program);
  choose_general(program, target);
}

}  // namespace stridec::schedule
