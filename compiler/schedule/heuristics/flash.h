// Chooses which GPU attention chains become one kernel, and their tiles (kernels/flash.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Returns attention with the query heads that share keys as additional rows, `row * heads + head`. Used with
// tiles of few rows if the model's number of rows is a symbol. Returns nothing if no heads share keys.
std::optional<loop::Nest> with_shared_rows(const loop::Program& program, const loop::Nest& nest);

// Whether one kernel takes less time than GEMM, softmax and GEMM with the scores in memory.
bool pays(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target);

// Returns nothing and sets `reason` if the nest is not an attention or no tile fits the target.
std::optional<kernels::FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                               const GpuTarget& target, std::string* reason = nullptr);

// All tiles that the target's kernels support.
std::vector<kernels::FlashPlan> flash_plans(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target);

}  // namespace stridec::schedule
