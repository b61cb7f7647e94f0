// Attention on a GPU: which chains become one kernel, and in which tiles (kernels/flash.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Attention whose heads share keys, with the heads that share them among the rows: `row * heads + head`. What tiles of few
// rows take where a model's number of rows is a symbol. Nothing where none share.
std::optional<loop::Nest> with_shared_rows(const loop::Program& program, const loop::Nest& nest);

// Whether one kernel takes less time than a product, a softmax and a product, which keep the scores in memory.
bool pays(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target);

// Nothing where the nest is no attention, or none whose tiles fit the target; `reason` says why.
std::optional<kernels::FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                               const GpuTarget& target, std::string* reason = nullptr);

// All tiles that the target's kernels take.
std::vector<kernels::FlashPlan> flash_plans(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target);

}  // namespace stridec::schedule
