// The list of graph passes, in order.
#pragma once

#include <span>

#include "compiler/base/pass.h"

namespace stridec::passes {

std::span<const Pass> graph_passes();

}  // namespace stridec::passes
