// The gradient rules of if and loop.
#pragma once

#include "compiler/ops/gradient.h"

namespace stridec::ops {

Ids if_gradient(Backward& backward, const graph::Node& node, const Ids& outputs, const Ids& wanted);
Ids loop_gradient(Backward& backward, const graph::Node& node, const Ids& outputs, const Ids& wanted);

}  // namespace stridec::ops
