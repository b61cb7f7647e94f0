#include "tests/unit/ops/harness.cpp"  // the same harness; its programs go through every pass first

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/constants.h"
#include "compiler/schedule/delinearize.h"
#include "compiler/schedule/fusion.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/phases.h"

namespace stridec::ops::test {
namespace {

std::vector<HostTensor> run_pipeline(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  codegen::cpu::RunCompiledOptions options;
  loop::Program chosen = program;
  schedule::hoist_constants(chosen);
  schedule::fuse(chosen);
  schedule::delinearize(chosen);
  schedule::split_phases(chosen);
  schedule::choose_layouts(chosen);
  schedule::choose(chosen, options.target);
  loop::verify(chosen);
  return codegen::cpu::run_compiled(chosen, inputs, options);
}

const bool kPipeline = [] {
  runner() = run_pipeline;
  return true;
}();

}  // namespace
}  // namespace stridec::ops::test
