// Squeeze without axes: the dims of size 1 leave, so that the rank of the result depends on sizes.
#pragma once

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// x without its dims of size 1. What is known of a size decides. Where a size may be 1 and may be larger, the
// rank that the model declares for the node's output decides; where it declares none, the dims that are 1 for
// sure leave, or the only dim that may be 1. Guards end the run for sizes that make this wrong. Throws Error
// kUnsupported where several dims may be 1 and nothing decides.
ops::Term squeeze_ones(const Context& c, ops::Term x);

}  // namespace stridec::onnx
