// Attention on a GPU: which chains become one kernel, and in which tiles (kernels/flash.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Heads that share keys, `%i // 4` in one factor of a product of one row a head, become a dim of heads and one of those
// that share: the rows of a chain.
void split_groups(loop::Program& program);

// Attention whose heads share keys, with the heads that share them among the rows: `row * heads + head`. What tiles of few
// rows take where a model's number of rows is a symbol. Nothing where none share.
std::optional<loop::Nest> with_shared_rows(const loop::Program& program, const loop::Nest& nest);

// Makes chains of the nests that the target's attention kernels take where that pays; others stay as they are.
void chain_gpu(loop::Program& program, const GpuTarget& target, std::vector<Decision>* decisions = nullptr);

// Whether one kernel takes less time than a product, a softmax and a product, which keep the scores in memory.
bool pays(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target);

// Nothing where the nest is no attention, or none whose tiles fit the target; `reason` says why.
std::optional<kernels::FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                               const GpuTarget& target, std::string* reason = nullptr);

// All tiles that the target's kernels take.
std::vector<kernels::FlashPlan> flash_plans(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target);

}  // namespace stridec::schedule
