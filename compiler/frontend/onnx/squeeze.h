// Squeeze without axes: removes the dims of size 1, so that the result's rank depends on sizes.
#pragma once

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// x without its dims of size 1. If a size may be 1 or larger, the rank that the model declares for the node's
// output decides. If none is declared, the dims known to be 1 are removed, or the only dim that may be 1.
// Guards check the assumption at run time. Throws Error kUnsupported if several dims may be 1 and nothing
// decides.
ops::Term squeeze_ones(const Context& c, ops::Term x);

}  // namespace stridec::onnx
