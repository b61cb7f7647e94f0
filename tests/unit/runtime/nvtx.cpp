#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/unit/runtime/harness.h"

using namespace fake;

namespace {

constexpr const char* kVariable = "NVTX_INJECTION64_PATH";

void run_scale(Context& context) {
  Array<float> x({4, 8}, 1.5f), scale({8}, 2.f);
  stridec_tensor inputs[] = {x.tensor(), scale.tensor()}, outputs[2] = {};
  REQUIRE(api().context_run(context.handle, inputs, 2, outputs, 2) == STRIDEC_OK);
}

void ignore(void*, const stridec_event*) {}

}  // namespace

// The tool is looked for once in a process, so the test runs itself again with the variable.
TEST_CASE("a tool that takes NVTX ranges gets one for each run and step") {
  if (!getenv(kVariable)) {
    setenv(kVariable, STRIDEC_FAKE_NVTX, 1);
    const char* arguments[] = {"test", "-tc=a tool that takes NVTX*", nullptr};
    pid_t child = 0;
    int status = -1;
    REQUIRE(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ) ==
            0);
    unsetenv(kVariable);
    waitpid(child, &status, 0);
    CHECK(status == 0);
    return;
  }
  Model model(scale());
  Context context(model, 2);
  void* const tool = dlopen(STRIDEC_FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(tool);
  const auto seen = reinterpret_cast<const char* (*)()>(dlsym(tool, "fake_nvtx_seen"));
  const auto names = reinterpret_cast<int (*)()>(dlsym(tool, "fake_nvtx_names"));
  const std::string one = "scale(stridec:multiply()stridec:add()stridec:sum())";
  CHECK(names() == 3);
  run_scale(context);
  CHECK(seen() == one);
  run_scale(context);
  CHECK(names() == 3);  // names are registered once
  // During another trace, after that has ended by itself, and after it was stopped.
  stridec_trace_options options = {.struct_size = sizeof options, .runs = 1, .sink = ignore};
  REQUIRE(api().context_trace(context.handle, &options) == STRIDEC_OK);
  run_scale(context);
  run_scale(context);
  REQUIRE(api().context_trace(context.handle, nullptr) == STRIDEC_OK);
  run_scale(context);
  CHECK(seen() == one + one + one + one + one);
}
