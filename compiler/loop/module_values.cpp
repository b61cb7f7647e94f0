#include "compiler/loop/module_values.h"

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

// `kind`: "state" or "parameter".
void check_same(const std::string& kind, const ModuleValues::Value& first, const Program& program,
                BufferId other) {
  const Buffer &a = (*first.program)[first.buffer], &b = program[other];
  const auto refuse = [&](const std::string& what, const std::string& help) {
    fail(ErrorKind::kDoesNotFit, cat(kind, "-differs"),
         cat(kind, " '", a.name, "' is ", what, ": functions share a ", kind, " of one name"), help);
  };
  const std::string alone =
      kind == "parameter"
          ? cat("; or make it a parameter of one function alone: --refit ", first.program->name, ":", a.name)
          : "";
  if (a.dtype != b.dtype || a.shape != b.shape)
    refuse(cat(type_of(a), " in function '", first.program->name, "' and ", type_of(b), " in function '",
               program.name, "'"),
           cat("give the models the same dtype and sizes for it, or rename it in one of them", alone));
  if (a.strides != b.strides)
    refuse(
        cat("declared with other layouts in functions '", first.program->name, "' and '", program.name, "'"),
        "give --layout without the name of a function");
  if (!same_bytes(a.weight, b.weight))
    refuse(cat("initialised differently in functions '", first.program->name, "' and '", program.name, "'"),
           cat("give the models the same initial value, or rename the ", kind, " in one of them", alone));
}

ModuleValues united(const std::string& kind, std::span<const Program* const> programs,
                    std::vector<BufferId> Program::* list) {
  ModuleValues out;
  for (const Program* program : programs) {
    const std::vector<BufferId>& values = program->*list;
    const std::vector<ValueKey> keys = value_keys(*program, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto [found, fresh] = out.index.emplace(keys[i], static_cast<int>(out.all.size()));
      if (fresh)
        out.all.push_back({program, i, values[i]});
      else
        check_same(kind, out.all[static_cast<size_t>(found->second)], *program, values[i]);
    }
  }
  return out;
}

}  // namespace

std::vector<ValueKey> value_keys(const Program& program, std::span<const BufferId> values) {
  std::vector<ValueKey> keys;
  std::map<std::string, int> seen;
  for (BufferId id : values) keys.emplace_back(program[id].name, seen[program[id].name]++);
  return keys;
}

ModuleValues module_states(std::span<const Program* const> programs) {
  return united("state", programs, &Program::states);
}

ModuleValues module_parameters(std::span<const Program* const> programs) {
  ModuleValues parameters = united("parameter", programs, &Program::parameters);
  const ModuleValues states = module_states(programs);
  for (const auto& [key, index] : parameters.index)
    if (const auto state = states.index.find(key); state != states.index.end())
      fail(ErrorKind::kDoesNotFit, "parameter-is-state",
           cat("'", key.first, "' is a replaceable parameter of function '",
               parameters.all[static_cast<size_t>(index)].program->name, "' and a state of function '",
               states.all[static_cast<size_t>(state->second)].program->name, "'"),
           "leave it out of --refit, or rename it in one of the models");
  return parameters;
}

}  // namespace stridec::loop
