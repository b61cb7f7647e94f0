#include "compiler/loop/module_states.h"

#include <cstring>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

std::string type_of(const Buffer& buffer) {
  return cat(name(buffer.dtype), "[", join(buffer.shape, ", ", [](sym::Expr e) { return sym::to_string(e); }),
             "]");
}

bool same_bytes(const WeightData& a, const WeightData& b) {
  return a.size == b.size && (a.bytes == b.bytes || std::memcmp(a.bytes, b.bytes, a.size) == 0);
}

void check_same(const ModuleStates::State& first, const Program& program, BufferId state) {
  const Buffer &a = (*first.program)[first.buffer], &b = program[state];
  const auto where = [&](const std::string& what, const std::string& help) {
    fail(ErrorKind::kDoesNotFit, "state-differs",
         cat("state '", a.name, "' is ", what, ": functions share a state of one name"), help);
  };
  if (a.dtype != b.dtype || a.shape != b.shape)
    where(cat(type_of(a), " in function '", first.program->name, "' and ", type_of(b), " in function '",
              program.name, "'"),
          "give the models the same sizes for it, or rename it in one of them");
  if (!same_bytes(a.weight, b.weight))
    where(cat("initialised differently in functions '", first.program->name, "' and '", program.name, "'"),
          "give the models the same initial value, or rename the state in one of them");
}

}  // namespace

ModuleStates module_states(std::span<const Program* const> programs) {
  ModuleStates out;
  for (const Program* program : programs)
    for (BufferId state : program->states) {
      const auto [found, fresh] = out.index.emplace((*program)[state].name, static_cast<int>(out.all.size()));
      if (fresh)
        out.all.push_back({program, state});
      else
        check_same(out.all[static_cast<size_t>(found->second)], *program, state);
    }
  return out;
}

}  // namespace stridec::loop
