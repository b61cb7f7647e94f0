#include "compiler/tune/subject.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/order_weights.h"
#include "compiler/schedule/pack_weights.h"

namespace stridec::tune {

loop::Program only_nest(const loop::Program& program, loop::NestId nest) {
  loop::Program alone = program;
  alone.steps.clear();
  alone.steps.push_back({loop::Launch{nest}});
  alone.prepack.clear();
  alone.inputs.clear(), alone.outputs.clear(), alone.states.clear();
  loop::compact(alone);
  alone.nests[0].schedule = {};
  return alone;
}

Emitted emit(const loop::Program& alone, const loop::Schedule& schedule, const CpuTarget& target) {
  loop::Program program = alone;
  program.nests[0].schedule = schedule;
  schedule::pack_weights(program);
  schedule::order_staged_weights(program);
  codegen::Kernel kernel = codegen::cpu::emit_kernel(program, program.nests[0], target);
  return {.program = std::move(program), .kernel = std::move(kernel)};
}

Subject subject_at(const Emitted& emitted, const Values& values) {
  auto value_of = [&](sym::Expr e) {
    const auto value = sym::evaluate(e, values);
    if (!value) fail(ErrorKind::kDoesNotFit, "no-size", "a size of the kernel has no value");
    return *value;
  };
  const codegen::Kernel& kernel = emitted.kernel;
  Subject subject;
  for (const loop::BufferId id : kernel.buffers) {
    const loop::Buffer& buffer = emitted.program[id];
    const int64_t bytes = value_of(schedule::extent_in_elements(buffer)) * byte_size(buffer.dtype);
    subject.arguments.push_back({bytes, buffer.dtype, buffer.storage == loop::Storage::kWeight});
  }
  for (const sym::Expr e : kernel.sizes) subject.sizes.push_back(value_of(e));
  for (size_t m = 0; m < kernel.messages.size(); ++m) subject.sizes.push_back(static_cast<int64_t>(m));
  subject.tasks = value_of(kernel.tasks);
  subject.grain = std::max<int64_t>(1, value_of(kernel.grain));
  subject.scratch_bytes = value_of(kernel.scratch_bytes);
  return subject;
}

}  // namespace stridec::tune
