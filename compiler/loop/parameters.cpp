#include <algorithm>
#include <set>

#include "compiler/loop/program.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

struct PrepackNest {
  std::vector<BufferId> reads, writes, updates;
};

PrepackNest effects_of(const Nest& nest) {
  PrepackNest out;
  for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* load = std::get_if<Load>(&stmt.node)) out.reads.push_back(load->access.buffer);
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      out.writes.push_back(store->access.buffer);
      if (store->update) out.updates.push_back(store->access.buffer);
    }
  });
  return out;
}

}  // namespace

bool is_constant(const Buffer& buffer) {
  return buffer.storage == Storage::kParameter && !buffer.replaceable;
}

std::vector<NestId> mark_derived(Program& program) {
  const auto replaceable = [&](BufferId id) { return program[id].replaceable; };
  std::set<NestId> derived;
  std::set<BufferId> updated;  // accumulated in memory that starts as zeros: all their writers run again
  for (NestId id : program.prepack) {
    const PrepackNest nest = effects_of(program[id]);
    updated.insert(nest.updates.begin(), nest.updates.end());
    if (std::none_of(nest.reads.begin(), nest.reads.end(), replaceable)) continue;
    derived.insert(id);
    for (BufferId to : nest.writes)
      if (program[to].storage == Storage::kParameter) program[to].replaceable = true;
  }
  std::vector<NestId> out;
  for (NestId id : program.prepack) {
    const PrepackNest nest = effects_of(program[id]);
    if (derived.contains(id) || std::any_of(nest.writes.begin(), nest.writes.end(), [&](BufferId to) {
          return replaceable(to) && updated.contains(to);
        }))
      out.push_back(id);
  }
  return out;
}

}  // namespace stridec::loop
