#include "compiler/codegen/cpu/derive.h"

#include <algorithm>
#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

// Parameters that nests accumulate in memory which starts as zeros.
std::set<loop::BufferId> sums_of(const loop::Program& program) {
  std::set<loop::BufferId> sums;
  for (loop::NestId id : program.prepack)
    loop::for_each_stmt(program[id].body, [&](const loop::Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && store->update && program[store->access.buffer].storage == loop::Storage::kParameter)
        sums.insert(store->access.buffer);
    });
  return sums;
}

// Marks prepacked parameters that depend on replaceable ones as replaceable. Returns the nests to run again,
// in order: those that read replaceable ones, and all writers of a sum of which one does.
std::vector<loop::NestId> mark_derived(loop::Program& program, const std::set<loop::BufferId>& sums) {
  const auto replaceable = [&](loop::BufferId id) { return program[id].replaceable; };
  std::set<loop::NestId> derived;
  for (loop::NestId id : program.prepack) {
    const loop::Effects effects = loop::effects_of(program[id]);
    if (std::ranges::none_of(effects.reads, replaceable)) continue;
    derived.insert(id);
    for (loop::BufferId to : effects.writes)
      if (program[to].storage == loop::Storage::kParameter) program[to].replaceable = true;
  }
  std::vector<loop::NestId> again = program.prepack;
  std::erase_if(again, [&](loop::NestId id) {
    return !derived.contains(id) &&
           std::ranges::none_of(loop::effects_of(program[id]).writes,
                                [&](loop::BufferId to) { return replaceable(to) && sums.contains(to); });
  });
  return again;
}

void zero(loop::Program& program, loop::BufferId id) {
  loop::NestBuilder nest(program, cat("zero ", program[id].name));
  const std::vector<sym::Expr> at = nest.dims(program[id].shape);
  nest.store(loop::whole(program, id), at, nest.constant(loop::int_scalar(program[id].dtype, 0)));
  nest.finish(&program.steps);
}

}  // namespace

CpuTarget derivation_target() { return cpu_target("x86-64-v2"); }

std::optional<Variant> derivation_of(loop::Program& program) {
  const std::set<loop::BufferId> sums = sums_of(program);
  const std::vector<loop::NestId> nests = mark_derived(program, sums);
  if (nests.empty()) return std::nullopt;
  Variant out{.target = derivation_target(), .program = program};
  loop::Program& derivation = out.program;
  derivation.steps.clear();
  for (loop::BufferId id : sums)
    if (derivation[id].replaceable) zero(derivation, id);
  for (loop::NestId id : nests) derivation.steps.push_back({loop::Launch{id}});
  derivation.prepack.clear();
  derivation.inputs.clear();
  derivation.outputs.clear();
  derivation.states.clear();
  derivation.parameters.clear();
  derivation.symbols.clear();
  derivation.guards.clear();
  out.scratch = scratch_of(derivation, out.target);
  schedule::plan_memory(derivation, schedule::InPlace::kSums, out.scratch);
  out.kernels = emit(out);
  return out;
}

void copy_places(const loop::Program& program, Variant& derivation) {
  STRIDEC_CHECK(derivation.program.buffers.size() <= program.buffers.size());
  for (size_t i = 0; i < derivation.program.buffers.size(); ++i)
    if (program.buffers[i].storage == loop::Storage::kParameter)
      derivation.program.buffers[i].offset = program.buffers[i].offset;
}

}  // namespace stridec::codegen::cpu
