#include "compiler/schedule/choose_gpu.h"

#include "compiler/loop/analysis.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_cuda_contraction.h"
#include "compiler/schedule/order_weights.h"
#include "compiler/schedule/schedule.h"

namespace stridec::schedule {
namespace {

// Neighbouring dims that every access walks through in step become one.
LoopPlan merged(const loop::Program& program, const loop::Nest& nest) {
  LoopPlan plan;
  loop::Nest now = reshaped(program, nest, plan);
  for (size_t d = now.dims.size(); d-- > 1;)
    if (can_merge(program, now, now.dims[d - 1].var, now.dims[d].var)) {
      plan.reshapes.push_back({{now.dims[d - 1].var, now.dims[d].var}, {}});
      now = reshaped(program, nest, plan);
    }
  return plan;
}

}  // namespace

void choose_gpu(loop::Program& program, const GpuTarget& target) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    loop::Nest& nest = program[launch->nest];
    if (nest.schedule != loop::Schedule{}) return;
    loop::blaming(nest, [&] {
      if (auto contraction = choose_cuda_contraction(program, nest, target))
        nest.schedule = std::move(*contraction);
      else
        nest.schedule.directives = directives(merged(program, nest));
    });
  });
  order_weights(program);
}

}  // namespace stridec::schedule
