// Attention kernels of many forms are built by NVRTC and stay within their registers.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/cubin.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/choose_flash.h"
#include "tests/support/flash_cases.h"

namespace stridec::codegen::cuda {
namespace {

void build(const test::FlashCase& c, const char* name) {
  const GpuTarget& target = gpu_target(name);
  INFO(c.dtype, " ", c.depth, "x", c.width, " ", c.bias, " for ", target.name);
  static const Nvrtc nvrtc("");
  loop::Program program = loop::parse_program(test::flash_text(c));
  loop::verify(program);
  loop::Nest& nest = program.nests[0];
  const auto plan = schedule::choose_flash(program, nest, target);
  REQUIRE(plan);
  nest.schedule = kernels::to_schedule(*plan);
  const DeviceNest made = emit_nest(program, nest, target);
  CHECK(made.choices.size() == (c.depth % 8 || c.width % 8 ? 1 : 2));
  CHECK(made.choices.back().condition.is_const(1));
  CHECK(made.choices.back().aligned.empty());
  for (const DeviceChoice& choice : made.choices)
    for (const DeviceKernel& launch : choice.launches) {
      const std::string cubin =
          nvrtc.compile("flash.cu", cat("#define KERNEL kernel\n", launch.code.text), target);
      const Resources info = resources_of(cubin, "kernel");
      INFO(info.registers, " registers, ", info.stack_bytes, " bytes of stack");
      if (!target.ptx) CHECK(info.registers > 0);
      CHECK(info.stack_bytes <= 96);
    }
}

TEST_CASE("attention: head sizes, masks and dtypes") {
  for (const char* target : {"sm_90a", "sm_86"}) {
    build({.depth = 128, .width = 128, .bias = "causal"}, target);
    build({.dtype = "bf16", .bias = "load", .group = 4, .guard = true}, target);
    build({.depth = 256, .width = 256}, target);
  }
  build({.depth = 33, .width = 17, .fixed = true}, "sm_80");
  build({.dtype = "bf16", .depth = 72, .width = 40, .bias = "lowest"}, "ptx");
}

}  // namespace
}  // namespace stridec::codegen::cuda
