// Where the user's own source is that a statement was compiled from.
#pragma once

#include <optional>
#include <string>

#include "compiler/frontend/torchscript/archive.h"
#include "compiler/frontend/torchscript/syntax.h"

namespace stridec::torchscript {

// "net.py, line 41" for a line of the serialised source of a function; none if the archive does not say, or
// if what it says is damaged.
std::optional<std::string> user_source(const Archive& archive, const Function& function, int line);

}  // namespace stridec::torchscript
