#include "tests/unit/ops/harness.cpp"  // the same harness; its programs go through every pass first

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/schedule/heuristics/choose.h"
#include "compiler/schedule/pass_list.h"

namespace stridec::ops::test {
namespace {

std::vector<HostTensor> run_pipeline(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  codegen::cpu::RunCompiledOptions options;
  loop::Program chosen = program;
  const Options values;
  const schedule::Chosen none;
  const PassContext context{.options = values, .cpu = &options.target, .chosen = &none};
  for (const auto& rows : {schedule::loop_passes(), schedule::cpu_loop_passes(), schedule::cpu_passes()})
    schedule::run_passes(rows, chosen, context);
  return codegen::cpu::run_compiled(chosen, inputs, options);
}

const bool kPipeline = [] {
  runner() = run_pipeline;
  return true;
}();

}  // namespace
}  // namespace stridec::ops::test
