// The product under a `reduce sum`: what makes a nest a contraction.
#pragma once

#include <optional>

#include "compiler/loop/program.h"

namespace stridec::schedule {

struct ContractionOperands {
  const loop::Reduce* reduce;
  const loop::Load *a, *b;  // behind casts; each lacks one of the nest's dims
};
std::optional<ContractionOperands> contraction_operands(const loop::Nest& nest);

}  // namespace stridec::schedule
