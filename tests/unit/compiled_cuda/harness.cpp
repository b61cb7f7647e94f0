// The grid of operators as CUDA kernels: every nest of every case is built by NVRTC for Hopper and as PTX. What runs is
// the interpreter; tests/gpu compares results on a device.
#include "tests/unit/ops/harness.cpp"  // the same harness

#include <cstdio>
#include <set>

#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/loop/walk.h"

namespace stridec::ops::test {
namespace {

// Kernels wait until there are enough for one program of NVRTC: a program costs 15 ms before it does anything.
struct Batch {
  const codegen::cuda::Nvrtc nvrtc{""};
  std::set<std::string> seen;
  std::string text;
  size_t waiting = 0;

  void add(const std::string& kernel) {
    if (!seen.insert(kernel).second) return;
    text += cat("namespace n", seen.size(), " {\n#define KERNEL k", seen.size(), "\n", kernel,
                "#undef KERNEL\n}\n");
    if (++waiting == 100) flush();
  }
  void flush() {
    if (!waiting) return;
    // PTX now and then: the front end is the same.
    for (const char* name : {"sm_90a", "ptx"})
      if (name[0] == 's' || seen.size() % 1000 < 100) nvrtc.compile("kernels.cu", text, gpu_target(name));
    text.clear();
    waiting = 0;
  }
};

Batch& batch() {
  static Batch current;
  return current;
}

std::vector<HostTensor> build_cuda(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  for (const loop::Nest& nest : program.nests)
    for (const auto& choice : codegen::cuda::emit_nest(program, nest, gpu_target("sm_90a")).choices)
      for (const auto& kernel : choice.launches) batch().add(kernel.code.text);
  return loop::interpret(program, inputs, {.poison = true});
}

const bool kBuilt = [] {
  runner() = build_cuda;
  return true;
}();

TEST_SUITE("zz") {  // after everything else, where tests run in the order of suites
  TEST_CASE("the last kernels are built too") {
    CHECK_NOTHROW(batch().flush());
    std::printf("%zu kernels built by NVRTC %s\n", batch().seen.size(), batch().nvrtc.version().c_str());
  }
}

}  // namespace
}  // namespace stridec::ops::test
