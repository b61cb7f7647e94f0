// The grid of operators as CUDA kernels: NVRTC builds an eighth of the kernels for Hopper and as PTX, and the
// kernels of a sixteenth of the cases run on the CPU, emulated; with STRIDEC_NIGHTLY those of all. With
// STRIDEC_TEST_GPU=1 they run on the GPU of this machine, through the runtime (tests/gpu/run.sh).
#include "tests/unit/ops/harness.cpp"  // the same harness

#include <cstdio>
#include <cstdlib>
#include <set>

#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/support/device_program.h"
#include "tests/support/emulate.h"
#include "tests/support/sample.h"

namespace stridec::ops::test {
namespace {

// Batches kernels into NVRTC programs, since each program costs 15 ms.
struct Batch {
  const codegen::cuda::Nvrtc nvrtc{""};
  std::set<std::string> seen;
  std::string text;
  size_t waiting = 0, built = 0;
  size_t emulated = 0, only_built = 0, cannot_be = 0;  // programs

  void add(const std::string& kernel) {
    if (!seen.insert(kernel).second || !stridec::test::in_sample(kernel, 8)) return;
    text += cat("namespace n", seen.size(), " {\n#define KERNEL k", seen.size(), "\n", kernel,
                "#undef KERNEL\n}\n");
    if (++waiting == 100) flush();
  }
  void flush() {
    if (!waiting) return;
    // PTX only for some: the front end is the same.
    for (const char* name : {"sm_90a", "ptx"})
      if (name[0] == 's' || seen.size() % 1000 < 100) {
        nvrtc.compile("kernels.cu", text, gpu_target(name));
        if (name[0] == 's') built += waiting;
      }
    text.clear();
    waiting = 0;
  }
};

Batch& batch() {
  static Batch current;
  return current;
}

// Whether the kernels of the program run in this run of the tests.
bool is_chosen(const loop::Program& program) {
  return stridec::test::in_sample(loop::to_string(program), 16);
}

// Nothing if the kernels are not emulated: values of the interpreter would say nothing about them.
Outputs emulate_cuda(const loop::Program& given, const std::vector<HostTensor>& inputs) {
  const GpuTarget& target = gpu_target("sm_90a");
  loop::Program program = given;
  schedule::choose_gpu(program, target);
  for (const loop::Nest& nest : program.nests)
    for (const auto& choice : codegen::cuda::emit_nest(program, nest, target).choices)
      for (const auto& kernel : choice.launches) batch().add(kernel.code.text);
  // The interpreter reports the errors that a case expects, since the emulator does not read the
  // kernels' error word.
  loop::interpret(given, inputs, {.poison = true});
  if (!is_chosen(given)) {
    ++batch().only_built;
    return std::nullopt;
  }
  codegen::cpu::run_prepack(program, cpu_target("native"), {.threads = 1});
  program.prepack.clear();
  size_t choices = 0;
  if (auto outputs = stridec::test::emulate(program, inputs, target, 0, &choices)) {
    ++batch().emulated;
    return outputs;
  }
  ++batch().cannot_be;
  return std::nullopt;
}

Outputs run_cuda(const loop::Program& given, const std::vector<HostTensor>& inputs) {
  codegen::cuda::Variant variant{gpu_target("sm_90a"), given};
  schedule::choose_gpu(variant.program, variant.target);
  schedule::plan_memory(variant.program);
  return stridec::test::DeviceProgram(std::move(variant)).run(inputs);
}

const bool kBuilt = [] {
  const char* gpu = std::getenv("STRIDEC_TEST_GPU");
  runner() = gpu && *gpu == '1' ? run_cuda : emulate_cuda;
  return true;
}();

TEST_SUITE("zz") {  // runs last, since tests run in suite order
  TEST_CASE("the last kernels are built too") {
    CHECK_NOTHROW(batch().flush());
    std::printf(
        "%zu kernels, %zu built by NVRTC %s; %zu programs emulated, %zu only built, %zu not emulated\n",
        batch().seen.size(), batch().built, batch().nvrtc.version().c_str(), batch().emulated,
        batch().only_built, batch().cannot_be);
    if (const ValueChecks& all = value_checks(); all.skipped)
      MESSAGE(all.skipped, " of ", all.asked, " value checks are skipped: the kernels are not run");
    // A program that cannot be emulated is compared with nothing.
    CHECK(batch().cannot_be * 50 <= batch().emulated);
  }
}

}  // namespace
}  // namespace stridec::ops::test
