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

// A kernel of an only_nest() program, with weights laid out as its schedule wants them.
struct Emitted {
  loop::Program program;
  codegen::Kernel kernel;
};
// Throws Error where the schedule cannot be emitted.
Emitted emit(const loop::Program& alone, const loop::Schedule& schedule, const CpuTarget& target);

// What its launch needs at the given sizes; objects and symbol are whoever builds it to fill in. Throws Error where a
// size has no value.
Subject subject_at(const Emitted& emitted, const Values& values);

}  // namespace stridec::tune
