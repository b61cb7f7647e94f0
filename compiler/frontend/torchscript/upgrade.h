// Operators of older files: what they meant then, in terms of today's.
#pragma once

#include <string>

#include "compiler/frontend/torchscript/evaluator.h"

namespace stridec::torchscript {

// Adds the arguments that make a call mean what it meant in the version that the file was written for
// (Evaluator::version).
void upgrade(Evaluator& e, const std::string& space, const std::string& name, Arguments& arguments);

}  // namespace stridec::torchscript
