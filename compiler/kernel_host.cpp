#include "compiler/kernel_host.h"

#include "compiler/codegen/cpu/run_user_kernel.h"

namespace stridec {

extend::KernelHost kernel_host() {
  namespace cpu = codegen::cpu;
  const auto run = [](const loop::UserKernel& kernel, std::span<const loop::RoutineBuffer> reads,
                      std::span<const loop::RoutineBuffer> writes, const std::vector<int64_t>& arguments) {
    cpu::run_user_kernel(kernel, reads, writes, arguments);
  };
  constexpr double kMostSeconds = 10;  // of a few elements
  const auto trial = [](const loop::UserKernel& kernel, std::span<const loop::RoutineBuffer> reads,
                        std::span<const loop::RoutineBuffer> writes, const std::vector<int64_t>& arguments,
                        const extend::KernelTrial& how) {
    cpu::run_user_kernel(kernel, reads, writes, arguments,
                         {.at_start = how.at_start,
                          .fill = how.fill,
                          .parts = how.parts,
                          .part = how.part,
                          .max_seconds = kMostSeconds});
  };
  return {.check = cpu::check_user_kernel, .run = run, .trial = trial};
}

}  // namespace stridec
