#include "compiler/schedule/algebra/constants.h"

#include <algorithm>
#include <set>

#include "compiler/base/dtype.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Storage;

// A result may be this many times larger than the weights it depends on, through any number of steps, or take
// kSmall bytes in any case. Floats may grow less than integers, which are intermediate steps towards other
// results. Bytes may grow more: they come from fewer bits, which contractions read directly. Results of
// lookups may be larger, because a load per lookup in every run is expensive, and a nest with lookups is no
// plain GEMM, mask or bias any more.
constexpr int64_t kGrowthOfFloats = 2, kGrowth = 4, kGrowthOfBytes = 8;
constexpr int64_t kSmall = 64 << 10, kSmallOfLookups = 4 << 20;
// Iterations of a nest that may run at compile time: those of a GEMM of two weights of 4096 rows and columns.
constexpr double kMostIterations = 0x1p36;

std::optional<int64_t> bytes_of(const loop::Buffer& buffer) {
  const auto count = sym::as_const(extent_in_elements(buffer));
  if (!count) return std::nullopt;
  return *count * byte_size(buffer.dtype);
}

double iterations(const loop::Block& block) {
  double sum = 1;
  for (const loop::Stmt& stmt : block)
    if (const loop::Block* body = loop::body_of(stmt)) {
      double each = iterations(*body);
      for (const loop::Dim& dim : loop::dims_of(stmt)) each *= sym::as_const(dim.extent).value_or(1);
      sum += each;
    }
  return sum;
}
double iterations(const Nest& nest) {
  double each = iterations(nest.body);
  for (const loop::Dim& dim : nest.dims) each *= sym::as_const(dim.extent).value_or(1);
  return each;
}

// Whether nothing in the nest depends on a symbol. What fails on constants fails in every run, and is
// reported at compile time.
bool is_static(const Nest& nest) {
  bool ok = true;
  auto constant = [&](sym::Expr e) {
    for (sym::Expr v : sym::free_vars(e)) ok = ok && sym::is_index(v);
  };
  for (const auto& dim : nest.dims) constant(dim.extent);
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) { loop::for_each_expr(stmt, constant); });
  return ok;
}

bool looks_up(const Nest& nest) {
  bool found = false;
  loop::for_each_stmt(
      nest.body, [&](const loop::Stmt& stmt) { found |= std::holds_alternative<loop::Bind>(stmt.node); });
  return found;
}

// A launch that may depend on weights alone.
struct ConstantLaunch {
  loop::NestId nest;
  bool inner;  // in a loop or a branch
  Effects effects;
  bool constant = true;
};

// The nest's effects without buffers local to its points.
Effects shared_effects(const Program& program, const Nest& nest) {
  Effects effects = effects_of(nest);
  for (auto* list : {&effects.reads, &effects.writes})
    std::erase_if(*list, [&](BufferId id) { return program[id].storage == Storage::kLocal; });
  return effects;
}

// Whether the buffer is a weight, or scratch whose writers are all still constant candidates.
bool is_constant(const Program& program, BufferId id, const std::vector<int>& writers,
                 const std::vector<ConstantLaunch>& candidates) {
  if (program[id].storage == Storage::kParameter) return true;
  const auto constant_writers =
      std::count_if(candidates.begin(), candidates.end(),
                    [&](const ConstantLaunch& c) { return c.constant && writes(c.effects, id); });
  return program[id].storage == Storage::kArena && constant_writers > 0 &&
         constant_writers == writers[id.value];
}

// By buffer: the weights that its elements depend on. Candidates are in execution order, so inputs have been
// visited.
std::vector<std::set<BufferId>> sources(const Program& program,
                                        const std::vector<ConstantLaunch>& candidates) {
  std::vector<std::set<BufferId>> from(program.buffers.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (program.buffers[i].storage == Storage::kParameter) from[i].insert(BufferId(i));
  for (const ConstantLaunch& candidate : candidates)
    for (BufferId to : candidate.effects.writes)
      for (BufferId id : candidate.effects.reads)
        from[to.value].insert(from[id.value].begin(), from[id.value].end());
  return from;
}

bool stays_constant(const Program& program, const ConstantLaunch& candidate, const std::vector<int>& writers,
                    const std::vector<ConstantLaunch>& candidates,
                    const std::vector<std::set<BufferId>>& sources) {
  int64_t in = 0, out = 0, growth = kGrowthOfBytes;
  const int64_t small = looks_up(program[candidate.nest]) ? kSmallOfLookups : kSmall;
  for (BufferId id : candidate.effects.reads)
    if (!is_constant(program, id, writers, candidates)) return false;
  for (BufferId id : candidate.effects.writes) {
    const auto bytes = bytes_of(program[id]);
    if (!bytes || program[id].storage != Storage::kArena || !is_constant(program, id, writers, candidates))
      return false;
    // An iteration might first find another writer's value there.
    if (candidate.inner && writers[id.value] > 1) return false;
    out += *bytes;
    const DType dtype = program[id].dtype;
    if (byte_size(dtype) > 1) growth = std::min(growth, is_float(dtype) ? kGrowthOfFloats : kGrowth);
    for (BufferId source : sources[id.value]) in += bytes_of(program[source]).value_or(0);
  }
  return out <= small || out <= growth * in;
}

// Collects the candidates in execution order. Nests in a loop or branch must not be able to fail, since they
// may never run.
void collect(const Program& program, const loop::Steps& steps, bool inner, std::vector<ConstantLaunch>& out) {
  for (const loop::Step& step : steps) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
      const Nest& nest = program[launch->nest];
      if (is_static(nest) && iterations(nest) <= kMostIterations && !(inner && looks_up(nest)))
        out.push_back({launch->nest, inner, shared_effects(program, nest)});
    } else if (const auto* loop = std::get_if<loop::While>(&step.node)) {
      collect(program, loop->body, true, out);
    } else if (const auto* branch = std::get_if<loop::If>(&step.node)) {
      collect(program, branch->then_steps, true, out);
      collect(program, branch->else_steps, true, out);
    }
  }
}

}  // namespace

void hoist_constants(Program& program) {
  std::vector<int> writers(program.buffers.size(), 0);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    for (BufferId id : effects_of(program, step).writes) ++writers[id.value];
  });
  std::vector<ConstantLaunch> candidates;
  collect(program, program.steps, false, candidates);
  const std::vector<std::set<BufferId>> from = sources(program, candidates);
  for (bool changed = true; changed;) {
    changed = false;
    for (ConstantLaunch& candidate : candidates) {
      if (!candidate.constant || stays_constant(program, candidate, writers, candidates, from)) continue;
      candidate.constant = false;
      changed = true;
    }
  }

  std::set<loop::NestId> hoisted;
  for (const ConstantLaunch& candidate : candidates) {
    if (!candidate.constant) continue;
    hoisted.insert(candidate.nest);
    program.prepack.push_back(candidate.nest);
    for (BufferId id : candidate.effects.writes) {
      program[id].storage = Storage::kParameter;
      program[id].prepacked = true;
    }
  }
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    std::erase_if(steps, [&](const loop::Step& step) {
      const auto* launch = std::get_if<loop::Launch>(&step.node);
      return launch && hoisted.contains(launch->nest);
    });
  });
}

}  // namespace stridec::schedule
