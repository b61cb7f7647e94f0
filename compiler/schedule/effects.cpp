#include "compiler/schedule/effects.h"

#include <algorithm>

#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;

void add(std::vector<BufferId>& ids, BufferId id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

bool reads(const Effects& effects, BufferId id) {
  return std::find(effects.reads.begin(), effects.reads.end(), id) != effects.reads.end();
}
bool writes(const Effects& effects, BufferId id) {
  return std::find(effects.writes.begin(), effects.writes.end(), id) != effects.writes.end();
}

Effects effects_of(const loop::Program& program, const loop::Step& step) {
  Effects effects;
  if (const auto* launch = std::get_if<loop::Launch>(&step.node)) effects = effects_of(program[launch->nest]);
  if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) effects.reads = {bind->buffer};
  if (const auto* loop = std::get_if<loop::While>(&step.node); loop && loop->condition.valid())
    effects.reads = {loop->condition};
  if (const auto* copy = std::get_if<loop::Copy>(&step.node)) effects = {{copy->from}, {copy->to}};
  if (const auto* call = std::get_if<loop::Call>(&step.node)) {
    for (BufferId id : call->reads) add(effects.reads, id);
    for (BufferId id : call->writes) add(effects.writes, id);
  }
  return effects;
}

sym::Expr extent_in_elements(const loop::Buffer& buffer) {
  // Layouts permute dims and never pad them.
  return loop::element_count(buffer.shape);
}

}  // namespace stridec::schedule
