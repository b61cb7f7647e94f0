#include "tests/unit/ops/harness.cpp"  // the same harness; its programs run as machine code

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/schedule/heuristics/loop_nest.h"

namespace stridec::ops::test {
namespace {

// Compiles the lowered program with the general emitter.
std::vector<HostTensor> run_compiled(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  codegen::cpu::RunCompiledOptions options;
  loop::Program chosen = program;
  schedule::choose_general(chosen, options.target);
  return codegen::cpu::run_compiled(chosen, inputs, options);
}

const bool kCompiled = [] {
  runner() = run_compiled;
  return true;
}();

}  // namespace
}  // namespace stridec::ops::test
