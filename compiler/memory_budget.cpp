#include "compiler/memory_budget.h"

#include <algorithm>
#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/codegen/host.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/sym/text.h"

namespace stridec {
namespace {

using loop::Program;
using sym::Expr;

// The arena of a planned program with as many threads as plans are evaluated for.
Expr arena_of(const Program& program) {
  return sym::simplify(
      sym::substitute(program.arena_bytes, {{loop::threads_of(program), Expr(schedule::kManyThreads)}}),
      program.facts);
}

Expr planned(const codegen::cpu::Variant& variant, const Program& program) {
  Program copy = program;
  codegen::lower_copies(copy);
  codegen::declare_symbols(copy);
  std::vector<schedule::Scratch> scratch = codegen::cpu::scratch_of(copy, variant.target);
  schedule::plan_memory(copy, schedule::InPlace::kSums, scratch);
  return arena_of(copy);
}

Expr planned(const codegen::cuda::Variant&, const Program& program) {
  Program copy = program;
  codegen::lower_copies(copy);
  codegen::declare_symbols(copy);
  schedule::plan_memory(copy);
  return arena_of(copy);
}

[[noreturn]] void out_of_reach(const FunctionResult& function, int64_t budget,
                               const schedule::RecomputePlan& plan) {
  fail(ErrorKind::kOverBudget, "memory-budget",
       cat(function.source.name.empty() ? "a run" : cat("function '", function.source.name, "'"), " takes ",
           plan.least, " bytes for tensors at least, more than the ", budget,
           " of --activation-memory-budget"),
       "raise the budget, or make the batch smaller");
}

template <class Variants>
void recompute(Compilation& compilation, schedule::MemoryBudget budget, Variants FunctionResult::* variants) {
  struct Unit {
    FunctionResult* function;
    size_t at;
    Expr keeping_all;
  };
  std::vector<Unit> units;
  for (FunctionResult& made : compilation.functions)
    for (size_t v = 0; v < (made.*variants).size(); ++v) {
      auto& variant = (made.*variants)[v];
      units.push_back({&made, v, planned(variant, variant.program)});
    }
  const auto bytes = [](Expr arena, const Program& program) {
    return static_cast<int64_t>(schedule::typical(arena, program.facts));
  };
  const auto program_of = [&](const Unit& unit) -> Program& {
    return (unit.function->*variants)[unit.at].program;
  };
  sort_stable(units, [&](const Unit& a, const Unit& b) {
    return bytes(a.keeping_all, program_of(a)) > bytes(b.keeping_all, program_of(b));
  });
  const std::optional<int64_t> promised = budget.bytes;
  for (const Unit& unit : units) {
    auto& variant = (unit.function->*variants)[unit.at];
    if (promised && !sym::as_const(unit.keeping_all))
      fail(ErrorKind::kUsage, "memory-budget",
           "--activation-memory-budget in bytes needs known sizes, and those of this model are open",
           cat("fix them, as by --dim batch=8, or give a share, such as 0.5; the memory is ",
               sym::to_string(unit.keeping_all), " bytes"));
    const schedule::RecomputePlan plan = schedule::recompute(
        variant.program, budget,
        [&](const Program& program) { return bytes(planned(variant, program), program); });
    if (promised && plan.arena > *promised) out_of_reach(*unit.function, *promised, plan);
    if (!budget.bytes) budget.bytes = plan.arena;
    if (unit.at == 0) unit.function->recomputation = plan;
  }
}

}  // namespace

schedule::MemoryBudget parse_memory_budget(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool plain = error == std::errc() && end == text.data() + text.size();
  if (plain && number >= 0 && number <= 1) return {.share = number};
  // A number without a unit would be a share.
  if (const auto bytes = plain ? std::nullopt : parse_bytes(text))
    return {.bytes = static_cast<int64_t>(*bytes)};
  fail(ErrorKind::kUsage, "bad-budget", cat("--activation-memory-budget does not take '", text, "'"),
       "it takes a share from 0 (the least memory) to 1 (keep everything), or bytes: 800MB, 2GiB");
}

std::string to_string(const schedule::MemoryBudget& budget) {
  return budget.bytes ? cat(*budget.bytes, "B") : cat(budget.share);
}

void recompute_for_cpu(Compilation& made, const schedule::MemoryBudget& budget) {
  recompute(made, budget, &FunctionResult::variants);
}
void recompute_for_gpu(Compilation& made, const schedule::MemoryBudget& budget) {
  recompute(made, budget, &FunctionResult::gpu_variants);
}

}  // namespace stridec
