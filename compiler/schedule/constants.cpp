#include "compiler/schedule/constants.h"

#include <algorithm>

#include "compiler/base/dtype.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Storage;

// A result may be this many times larger than its sources, or this small in any case.
constexpr int64_t kGrowth = 4;
constexpr int64_t kSmall = 64 << 10;

std::optional<int64_t> bytes_of(const loop::Buffer& buffer) {
  const auto count = sym::as_const(extent_in_elements(buffer));
  if (!count) return std::nullopt;
  return *count * byte_size(buffer.dtype);
}

// Nothing in the nest depends on a symbol or may fail at run time.
bool is_static(const Nest& nest) {
  bool ok = true;
  auto constant = [&](sym::Expr e) {
    for (sym::Expr v : sym::free_vars(e)) ok = ok && sym::is_index(v);
  };
  for (const auto& dim : nest.dims) constant(dim.extent);
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    loop::for_each_expr(stmt, constant);
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node))
      ok = ok && bind->mode != loop::Bind::OutOfRange::kError;
  });
  return ok;
}

bool is_constant(const Program& program, const Nest& nest, const std::vector<int>& writers) {
  if (!is_static(nest)) return false;
  const Effects effects = effects_of(nest);
  int64_t in = 0, out = 0;
  for (BufferId id : effects.reads) {
    if (program[id].storage != Storage::kWeight) return false;
    in += bytes_of(program[id]).value_or(0);
  }
  for (BufferId id : effects.writes) {
    const auto bytes = bytes_of(program[id]);
    if (program[id].storage != Storage::kArena || writers[id.value] != 1 || !bytes) return false;
    out += *bytes;
  }
  return out <= kSmall || out <= kGrowth * in;
}

}  // namespace

void hoist_constants(Program& program) {
  std::vector<int> writers(program.buffers.size(), 0);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    for (BufferId id : effects_of(program, step).writes) ++writers[id.value];
  });
  loop::Steps kept;
  for (auto& step : program.steps) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || !is_constant(program, program[launch->nest], writers)) {
      kept.push_back(std::move(step));
      continue;
    }
    for (BufferId id : effects_of(program[launch->nest]).writes) {
      program[id].storage = Storage::kWeight;
      program[id].prepacked = true;
    }
    program.prepack.push_back(launch->nest);
  }
  program.steps = std::move(kept);
}

}  // namespace stridec::schedule
