// A nest with a schedule as something to measure.
#pragma once

#include <functional>
#include <optional>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"
#include "compiler/tune/measure.h"

namespace stridec::tune {

using Values = std::function<std::optional<int64_t>(sym::Expr)>;  // of symbols

// The program reduced to one nest, with nothing scheduled.
loop::Program only_nest(const loop::Program& program, loop::NestId nest);

// A kernel of an only_nest() program with what its launch needs at the given sizes.
struct Emitted {
  codegen::Kernel kernel;
  Subject subject;  // objects and symbol are filled in when it is built
};
// Throws Error where the schedule cannot be emitted or a size has no value.
Emitted emit_subject(const loop::Program& alone, const loop::Schedule& schedule, const CpuTarget& target,
                     const Values& values);

}  // namespace stridec::tune
