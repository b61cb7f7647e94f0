#include "tests/unit/ops/harness.cpp"  // the same harness; its programs go through every pass first

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/schedule/pass_list.h"

namespace stridec::ops::test {
namespace {

std::vector<HostTensor> run_pipeline(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  codegen::cpu::RunCompiledOptions options;
  loop::Program chosen = program;
  schedule::run_cpu_passes(chosen, options.target);
  return codegen::cpu::run_compiled(chosen, inputs, options);
}

const bool kPipeline = [] {
  runner() = run_pipeline;
  return true;
}();

}  // namespace
}  // namespace stridec::ops::test
