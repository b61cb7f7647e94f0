// Assignments that satisfy facts, at which a condition that is to be proved may turn out false.
#pragma once

#include "compiler/sym/facts.h"

namespace stridec::sym {

// Whether e is negative at one of a few assignments that satisfy the facts: then no proof of e >= 0 exists.
bool has_negative_sample(Expr e, const Facts& facts);

}  // namespace stridec::sym
