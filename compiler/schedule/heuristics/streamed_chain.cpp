#include "compiler/schedule/heuristics/streamed_chain.h"

namespace stridec::schedule {
namespace {

using kernels::StreamedChainPlan;

// More columns a step mean fewer barriers.
constexpr StreamedChainPlan kTiles[] = {{.rows = 64, .columns = 64},
                                        {.rows = 64, .columns = 32},
                                        {.rows = 128, .columns = 64},
                                        {.rows = 128, .columns = 32},
                                        {.rows = 64, .columns = 16}};
constexpr int kMostRegisters = 180;  // of the 255 of a thread; addresses and fragments take the others

}  // namespace

std::vector<StreamedChainPlan> streamed_chain_plans(const loop::Program& program, const loop::Nest& nest,
                                                    const GpuTarget& target, std::string* reason) {
  const auto chain = kernels::match_streamed_chain(program, nest, reason);
  if (!chain) return {};
  const auto refuse = [&](const char* why) {
    if (reason) *reason = why;
    return std::vector<StreamedChainPlan>();
  };
  if (chain->dtype != DType::kF16 && chain->dtype != DType::kBF16 && chain->dtype != DType::kTF32 &&
      chain->dtype != DType::kF32)
    return refuse("its factors are not floats of 16 or 32 bits");
  std::vector<StreamedChainPlan> plans;
  for (const StreamedChainPlan& plan : kTiles)
    if (kernels::shared_bytes(plan, *chain) <= target.shared_bytes &&
        kernels::registers(plan, *chain) <= kMostRegisters)
      plans.push_back(plan);
  return plans.empty() ? refuse("its sums and columns do not fit registers and shared memory") : plans;
}

}  // namespace stridec::schedule
