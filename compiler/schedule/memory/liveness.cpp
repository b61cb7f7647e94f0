#include "compiler/schedule/memory/liveness.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/sort.h"
#include "compiler/schedule/memory/arena.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/memory/tiled_group_memory.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Storage;
using sym::Expr;

// The size of every symbol, clamped to its range, and the number of threads.
struct Sizes {
  int64_t symbol, threads;
};
constexpr Sizes kSizes[] = {
    {kTypicalSize, kManyThreads}, {kModestSize, kFewThreads}, {kSmallSize, kFewThreads}};
constexpr int64_t kTooMany = int64_t{1} << 45;  // sums of such values stay within 64 bits

}  // namespace

Liveness::Liveness(const Program& program, const Flow& flow) : program_(program), flow_(flow) {
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    std::vector<int64_t>& bytes = bytes_.emplace_back(program.buffers.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      const loop::Buffer& buffer = program.buffers[i];
      if (buffer.storage == Storage::kArena)
        bytes[i] = evaluate(extent_in_elements(buffer) * byte_size(buffer.dtype), s);
    }
  }
  for (size_t at = 0; at < program.steps.size(); ++at)
    if (const auto* strips = std::get_if<loop::TiledGroup>(&program.steps[at].node))
      strips_.push_back({{static_cast<int>(at)}, strips->own, own_memory(program, *strips).bytes});
}

int64_t Liveness::evaluate(Expr bytes, size_t sizes) const {
  const auto value = sym::evaluate(bytes, [&](Expr var) -> std::optional<int64_t> {
    const sym::Interval range = program_.facts.bounds(var);
    int64_t size = kSizes[sizes].symbol;
    if (range.has_hi()) size = std::min(size, range.hi);
    if (range.has_lo()) size = std::max(size, range.lo);
    return size;
  });
  return std::min(kTooMany, value.value_or(kTooMany));
}

std::vector<std::vector<int64_t>> Liveness::curves(std::span<const StepGroup> groups,
                                                   std::span<const PartCopy> copies) const {
  std::vector<size_t> time(program_.steps.size());
  for (size_t at = 0; at < time.size(); ++at) time[at] = 2 * at;
  std::vector<bool> own(program_.buffers.size());
  for (const auto& all : {std::span<const StepGroup>(strips_), groups})
    for (const StepGroup& group : all) {
      for (int at : group.at) time[static_cast<size_t>(at)] = 2 * static_cast<size_t>(group.at.back());
      for (BufferId id : group.own) own[id.value] = true;
    }
  const size_t times = 2 * time.size();
  std::vector<std::vector<const Nest*>> nests(times);
  std::vector<Lifetime> lives(program_.buffers.size()), copied(copies.size());
  std::vector<bool> busy(times);
  for (size_t c = 0; c < copies.size(); ++c) {
    const size_t when = 2 * static_cast<size_t>(copies[c].after) + 1;
    copied[c].touch(static_cast<int>(when));
    lives[copies[c].from.value].touch(static_cast<int>(when));
    busy[when] = true;
  }
  for (size_t at = 0; at < time.size(); ++at) {
    const size_t when = time[at];
    busy[when] = true;
    if (const auto* launch = std::get_if<loop::Launch>(&program_.steps[at].node))
      nests[when].push_back(&program_[launch->nest]);
    if (const auto* strips = std::get_if<loop::TiledGroup>(&program_.steps[at].node))
      for (const loop::Step& step : strips->body)
        nests[when].push_back(&program_[std::get<loop::Launch>(step.node).nest]);
    for (const auto* ids : {&flow_.effects(at).reads, &flow_.effects(at).writes})
      for (BufferId id : *ids) {
        if (program_[id].storage != Storage::kArena || own[id.value]) continue;
        Lifetime* life = &lives[id.value];
        for (size_t c = 0; c < copies.size(); ++c)
          if (copies[c].from == id && static_cast<int>(when) > copied[c].first) life = &copied[c];
        life->touch(static_cast<int>(when));
      }
  }

  std::vector<size_t> order;
  for (size_t i = 0; i < lives.size(); ++i)
    if (lives[i].used()) order.push_back(i);
  sort_stable(order, [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
  const std::vector<size_t> leader = join_in_place(lives, order, [&](size_t i) -> std::optional<size_t> {
    const auto operand = in_place_operand(program_, nests[static_cast<size_t>(lives[i].first)],
                                          BufferId(static_cast<int64_t>(i)), InPlace::kSums);
    if (!operand || own[operand->value]) return std::nullopt;
    return static_cast<size_t>(operand->value);
  });

  std::vector<std::vector<int64_t>> curves;
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    // holds changes until the partial sum below
    std::vector<int64_t>& alive = curves.emplace_back(times + 1);
    const auto add = [&](const Lifetime& life, int64_t bytes) {
      alive[static_cast<size_t>(life.first)] += bytes;
      alive[static_cast<size_t>(life.last) + 1] -= bytes;
    };
    for (size_t i : order)
      if (leader[i] == i) add(lives[i], bytes_[s][i]);
    for (size_t c = 0; c < copies.size(); ++c) add(copied[c], evaluate(copies[c].bytes, s));
    for (const auto& all : {std::span<const StepGroup>(strips_), groups})
      for (const StepGroup& group : all)
        add({2 * group.at.back(), 2 * group.at.back()},
            std::min(kTooMany, evaluate(group.bytes, s) * kSizes[s].threads));
    alive.pop_back();
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    for (size_t when = 0; when < times; ++when)
      if (!busy[when]) alive[when] = 0;
  }
  return curves;
}

}  // namespace stridec::schedule
