// One declaration of a file of --ops.
#pragma once

#include "compiler/extend/json_place.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {

// Without variadic tensors (variadic.h expands them). Throws as parse_operators() does.
UserOperator parse_operator(const JsonPlace& declaration);

// The value of a tolerance, by which results may differ. Throws as parse_operators() does.
double tolerance(const JsonPlace& at);

}  // namespace stridec::extend
