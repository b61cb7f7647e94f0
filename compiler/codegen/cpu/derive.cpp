#include "compiler/codegen/cpu/derive.h"

#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

// Adds launches that zero the memory in which nests accumulate.
void zero_sums(loop::Program& program, const std::vector<loop::NestId>& nests) {
  std::set<loop::BufferId> sums;
  for (loop::NestId id : nests)
    loop::for_each_stmt(program[id].body, [&](const loop::Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && store->update && program[store->access.buffer].storage == loop::Storage::kParameter)
        sums.insert(store->access.buffer);
    });
  for (loop::BufferId id : sums) {
    loop::NestBuilder zero(program, cat("zero ", program[id].name));
    const std::vector<sym::Expr> at = zero.dims(program[id].shape);
    zero.store(loop::whole(program, id), at, zero.constant(loop::int_scalar(program[id].dtype, 0)));
    zero.finish(&program.steps);
  }
}

}  // namespace

CpuTarget derivation_target() { return cpu_target("x86-64-v2"); }

std::optional<Variant> derivation_of(loop::Program& program) {
  const std::vector<loop::NestId> nests = loop::mark_derived(program);
  if (nests.empty()) return std::nullopt;
  Variant out{.target = derivation_target(), .program = program};
  loop::Program& derivation = out.program;
  derivation.steps.clear();
  zero_sums(derivation, nests);
  for (loop::NestId id : nests) derivation.steps.push_back({loop::Launch{id}});
  derivation.prepack.clear();
  derivation.inputs.clear();
  derivation.outputs.clear();
  derivation.states.clear();
  derivation.parameters.clear();
  derivation.symbols.clear();
  derivation.guards.clear();
  emit(out);
  schedule::plan_memory(derivation, schedule::InPlace::kSums, out.scratch);
  return out;
}

void copy_places(const loop::Program& program, Variant& derivation) {
  STRIDEC_CHECK(derivation.program.buffers.size() <= program.buffers.size());
  for (size_t i = 0; i < derivation.program.buffers.size(); ++i)
    if (program.buffers[i].storage == loop::Storage::kParameter)
      derivation.program.buffers[i].offset = program.buffers[i].offset;
}

}  // namespace stridec::codegen::cpu
